"""A potential's step on a GPU, recorded once for a neighbour list and replayed for new positions.

A step of a small system is hundreds of short kernels, and the host needs several times as long to
start them as the device to run them. A CUDA graph starts all of them at once. It has the addresses
of the recorded step, so that it serves as long as every tensor but the positions is the same
object: in a simulation, until the next neighbour list.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.core.log import get_logger
from scitoolkit.potentials.model import Potential

LARGEST = 20_000
"""Atoms above which the device is busy anyway, and a recorded step would hold its memory."""
POSITIONS = "positions"


class CapturedCall:
    """A model called with one neighbour list again and again.

    The first call with a list runs as usual, which compiles kernels and fills caches; the second
    one records. A model that waits for the device in its step cannot be recorded and runs as usual.

    Args:
        model: on any device, in evaluation mode; not on a GPU, it is called as it is.

    Attributes:
        refused: why the step cannot be recorded, empty if it can.
        replays: number of calls that were replayed.

    Example:
        >>> from scitoolkit.potentials import SeE2AConfig
        >>> model = SeE2AConfig(sel=[2, 3], embedding=[4, 8], axis_neurons=4,
        ...                     fitting=[8]).build(["O", "H"]).eval()
        >>> CapturedCall(model).replays
        0
    """

    refused: str
    replays: int

    def __init__(self, model: Potential) -> None:
        self.model: Potential = model
        self.refused, self.replays = "", 0
        self._calls = 0  # with the present list
        self._tensors: list[Tensor] = []
        self._versions: list[int] = []
        self._positions: Tensor | None = None
        self._replay: Callable[[], None] | None = None
        self._outputs: dict[str, Tensor] = {}

    def __getstate__(self) -> dict[str, Potential]:
        return {"model": self.model}

    def __setstate__(self, state: dict[str, Potential]) -> None:
        self.__init__(state["model"])  # type: ignore[misc]

    def __call__(self, graph: Batch) -> dict[str, Tensor]:
        """Return the model's outputs, on its device.

        Args:
            graph: on the model's device; see `potentials.graph`.
        """
        positions = graph[POSITIONS]
        if not self._may_record(positions):
            return self.model(graph)
        if not self._is_same(graph):
            self._forget(graph)
        self._calls += 1
        if self._calls > 1 and self._replay is None:
            self._record(graph)
        if self._replay is None or self._positions is None:
            return self.model(graph)
        self._positions.copy_(positions)
        self._replay()
        self.replays += 1
        return {name: value.clone() for name, value in self._outputs.items()}

    def _may_record(self, positions: Tensor) -> bool:
        ready = positions.is_cuda and not self.model.training and not self.refused
        return ready and len(positions) <= LARGEST

    def _constants(self, graph: Batch) -> list[Tensor]:
        """Return what a recorded step reads at its address: all but the positions."""
        of_list = [value for name, value in graph.items() if name != POSITIONS]
        return [*of_list, *self.model.parameters(), *self.model.buffers()]

    def _is_same(self, graph: Batch) -> bool:
        constants = self._constants(graph)
        return (
            len(constants) == len(self._tensors)
            and all(a is b for a, b in zip(constants, self._tensors, strict=True))
            and [tensor._version for tensor in constants] == self._versions
        )

    def _forget(self, graph: Batch) -> None:
        """Begin with a new list; the tensors are held, so that their addresses are not reused."""
        self._replay, self._positions, self._outputs, self._calls = None, None, {}, 0
        self._tensors = self._constants(graph)
        self._versions = [tensor._version for tensor in self._tensors]

    def _record(self, graph: Batch) -> None:
        positions = graph[POSITIONS].clone()
        same = {**graph, POSITIONS: positions}
        try:
            self._replay, self._outputs = recorded(lambda: self.model(same))
            self._positions = positions
        except RuntimeError as error:
            self.refused = str(error).splitlines()[0]
            get_logger(__name__).info(
                f"steps of this model are not recorded as a CUDA graph: {self.refused}"
            )


def recorded(call: Callable[[], dict[str, Tensor]]) -> tuple[Callable[[], None], dict[str, Tensor]]:
    """Record the kernels of a call; return the function that replays them, and its outputs.

    Args:
        call: without arguments; it has run before, so that all kernels are compiled.

    Raises:
        RuntimeError: the call waits for the device.
    """
    torch.cuda.synchronize()
    recording = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(recording):
        outputs = call()
    return recording.replay, {name: value.detach() for name, value in outputs.items()}

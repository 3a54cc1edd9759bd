"""Latency table: measured seconds of layers and their factors as exported C on this machine.

A layer is measured in isolation, with channels last as in the C of a model, without checks of
inputs, and with its weights no closer in the caches than after a call of the whole model. The
predicted time of a model is that of the original minus the gains of its layers.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy.builder import Processor
from scitoolkit.deploy.rank.clock import Timed, shortest
from scitoolkit.deploy.source import FLAGS, generate
from scitoolkit.ops.codegen.compile import WIDE, load_library
from scitoolkit.ops.low_rank import empty_factors

ROUNDS = 25
"""Timed calls of each candidate; the shortest counts, as other processes may interfere."""
FRACTIONS = (0.25, 0.375, 0.5, 0.75, 1.0)
"""Candidate ranks relative to the full ones."""

Ranks = tuple[int, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Use:
    """A layer of a model and its inputs in one call of the model with one sample.

    Attributes:
        name: of the layer.
        layer: the module.
        shapes: shape of the input for each call of the layer.
    """

    name: str
    layer: nn.Module
    shapes: tuple[Shape, ...]


def candidate_ranks(full: Ranks, lanes: int) -> list[Ranks]:
    """Return candidate ranks: multiples of a vector, with similar shares on both sides.

    Args:
        full: the full ranks.
        lanes: numbers per vector register; half of it is the step for few channels.

    Example:
        >>> candidate_ranks((64,), 8), candidate_ranks((12, 8), 8)
        ([(16,), (24,), (32,), (48,)], [(4, 4), (8, 4), (8, 8)])
    """
    sides = []
    for n in full:
        step = lanes if n >= 4 * lanes else max(1, lanes // 2)
        sides.append([min(n, max(step, round(n * f / step) * step)) for f in FRACTIONS])
    if len(full) == 1:
        return sorted({(r,) for r in sides[0] if r < full[0]})
    near = range(len(FRACTIONS))
    pairs = {(sides[0][a], sides[1][b]) for a in near for b in near if abs(a - b) <= 1}
    return sorted(r for r in pairs if r != full)


def measured(
    uses: Sequence[Use],
    candidates: Mapping[str, Sequence[Ranks | None]],
    target: Processor,
    sweep: int,
) -> dict[str, dict[Ranks | None, float]]:
    """Return {layer: {ranks: seconds of all its calls in one call of the model}}.

    Args:
        uses: layers of the model.
        candidates: {layer: ranks to measure}, None for the original layer.
        target: processor.
        sweep: bytes of the model's weights and workspace.

    Raises:
        BackendError: no compiler.
    """
    geometries: dict[tuple, TracedFunction] = {}
    for use in uses:
        for ranks in candidates[use.name]:
            for shape in set(use.shapes):
                key = (_geometry(use.layer), ranks, shape)
                if key not in geometries:
                    geometries[key] = _alone(use.layer, ranks, shape, f"f{len(geometries)}")
    seconds = dict(zip(geometries, _clocked([*geometries.values()], target, sweep), strict=True))
    return {
        use.name: {
            ranks: sum(seconds[_geometry(use.layer), ranks, shape] for shape in use.shapes)
            for ranks in candidates[use.name]
        }
        for use in uses
    }


def _geometry(layer: nn.Module) -> str:
    """Return a key that is equal for layers of equal geometry, which take equal time."""
    return repr(layer)


class _ChannelsLast(nn.Module):
    """Convolution of arrays (samples, batch, *space, channels)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x.flatten(0, 1).movedim(-1, 1)).movedim(1, -1)
        return output.unflatten(0, (-1, x.shape[1]))


@torch.no_grad()
def _alone(layer: nn.Module, ranks: Ranks | None, shape: Shape, name: str) -> TracedFunction:
    """Return a layer or its factors as a traced function.

    Weights are constant and differ between factors, as equal arrays would be stored once.
    """
    made = copy.deepcopy(layer) if ranks is None else empty_factors(layer, ranks)
    for k, parameter in enumerate(made.parameters()):
        parameter.fill_(1e-3 * (k + 1))
    module: nn.Module = made.eval()
    if not isinstance(layer, nn.Linear):
        shape = (shape[0], *shape[2:], shape[1])
        module = _ChannelsLast(made).eval()
    result = tuple(module(torch.zeros(1, *shape)).shape[1:])
    specs = [
        ArraySpec(n, tuple(f"d{k}" for k in range(len(s))), s)
        for n, s in (("x", shape), ("y", result))
    ]
    return TracedFunction(module, specs[:1], specs[1:], name=name)


def _clocked(functions: Sequence[TracedFunction], target: Processor, sweep: int) -> list[float]:
    """Return the shortest seconds of a call of each function."""
    source = generate("table", functions, target, bare=True)
    library = load_library(source.code, (*FLAGS, "-march=native", *WIDE))
    timed = []
    for about in source.about["functions"]:
        address = ctypes.cast(getattr(library, about["symbol"]), ctypes.c_void_p).value
        assert address is not None
        shapes = [[abs(n) for n in about[way][0]["shape"]] for way in ("inputs", "outputs")]
        arrays = [np.zeros(shape, np.float32) for shape in shapes]
        timed.append(Timed(address, arrays, about["workspace_bytes"]))
    return shortest(timed, ROUNDS, sweep)

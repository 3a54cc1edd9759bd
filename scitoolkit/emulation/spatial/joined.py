"""Evaluation and prediction of whole fields, of which every process computes a slab."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.ensemble import AnyEmulator, Ensemble, members_of
from scitoolkit.emulation.spatial.slab_training import Slab
from scitoolkit.emulation.spatial.slabs import Slabs
from scitoolkit.training.ranks.communicator import Communicator, join


class JoinedEmulator(Emulator):
    """Emulator of whole fields with its forward pass divided among processes.

    All processes call it with equal fields and receive equal results, bit for bit. The activations,
    many times larger than the fields, are divided; the fields are not. It is a subclass, so that
    rollouts, reports and predictions use it like the emulator that it equals.

    Args:
        whole: the emulator, equal on all processes.
        config: its job.
        ranks: the processes; by default those of the group of this process.

    Raises:
        ConfigError: a setting that does not support slabs.
    """

    def __init__(
        self, whole: Emulator, config: EmulationConfig, ranks: Communicator | None = None
    ) -> None:
        super().__init__(
            whole.layout, whole.advance, whole.diagnose, list(whole.guards), whole.determined
        )
        ranks = ranks or join()
        self.slab: Slab = Slab(config, whole.layout, ranks)
        self.slabs: Slabs = Slabs(ranks, config.boundary.get(self.slab.dim, "zeros"))
        self.part: Emulator = self.slab.emulator(whole)

    def forward(
        self, *inputs: Tensor, truth: dict[str, Tensor] | None = None
    ) -> tuple[Tensor, ...]:
        """Return the outputs of the layout, whole fields (B, *dims) on every process."""
        assert truth is None, "training calls the slab's own emulator"
        own = [
            self.slab.on_grid(x) if v.is_field else x
            for v, x in zip(self.layout.inputs, inputs, strict=True)
        ]
        outputs = zip(self.layout.outputs, self.part(*own), strict=True)
        return tuple(
            self.slabs.whole(x, 1 + self.slab.axis) if v.is_field else x for v, x in outputs
        )


def over_processes(emulator: AnyEmulator, config: EmulationConfig) -> AnyEmulator:
    """Return the emulator with its work divided if there are several processes, else itself."""
    if join().size == 1:
        return emulator
    made = [JoinedEmulator(member, config) for member in members_of(emulator)]
    return (Ensemble(made) if isinstance(emulator, Ensemble) else made[0]).eval()

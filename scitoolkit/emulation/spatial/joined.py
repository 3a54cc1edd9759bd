"""An emulator on whole fields of which every process computes a slab: evaluation, prediction."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.ensemble import AnyEmulator, Ensemble, members_of
from scitoolkit.emulation.spatial.slab_training import Slab
from scitoolkit.emulation.spatial.slabs import Slabs
from scitoolkit.training.ranks.communicator import Communicator, join


class JoinedEmulator(Emulator):
    """An emulator whose forward pass is divided among processes, from whole fields to whole fields.

    All processes call it with the same fields and get the same bits. What a network holds between
    its layers, many times the fields, is divided; the fields are not. A subclass, so that rollouts,
    reports and predictions take it for the emulator that it equals.

    Args:
        whole: the emulator, the same on all processes.
        config: its job.
        ranks: the processes; those of the group that this process has joined unless given.

    Raises:
        ConfigError: what cannot work in slabs, by its key.
    """

    def __init__(
        self, whole: Emulator, config: EmulationConfig, ranks: Communicator | None = None
    ) -> None:
        super().__init__(
            whole.layout, whole.advance, whole.diagnose, list(whole.guards), whole.determined
        )
        ranks = ranks or join()
        self.slab = Slab(config, whole.layout, ranks)
        self.slabs = Slabs(ranks, config.boundary.get(self.slab.dim, "zeros"))
        self.part: Emulator = self.slab.emulator(whole)

    def forward(
        self, *inputs: Tensor, known: dict[str, Tensor] | None = None
    ) -> tuple[Tensor, ...]:
        """Return the outputs of the layout, each (B, *dims), whole on every process."""
        assert known is None, "training calls the slab's own emulator"
        own = [
            self.slab.on_grid(x) if v.is_field else x
            for v, x in zip(self.layout.inputs, inputs, strict=True)
        ]
        outputs = zip(self.layout.outputs, self.part(*own), strict=True)
        return tuple(
            self.slabs.whole(x, 1 + self.slab.axis) if v.is_field else x for v, x in outputs
        )


def over_processes(emulator: AnyEmulator, config: EmulationConfig) -> AnyEmulator:
    """Return the emulator in slabs where this process has joined others, else itself."""
    if join().size == 1:
        return emulator
    made = [JoinedEmulator(member, config) for member in members_of(emulator)]
    return (Ensemble(made) if isinstance(emulator, Ensemble) else made[0]).eval()

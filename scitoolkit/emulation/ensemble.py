"""Ensembles: emulators of one layout with different initialisations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch, Progress
from scitoolkit.core.seeds import derive_seed
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.emulator import Emulator, build
from scitoolkit.emulation.normalized_network import Statistics
from scitoolkit.emulation.task import EmulationTask
from scitoolkit.emulation.variables import Layout, Variable
from scitoolkit.ops.low_rank import empty_factors, replaced


class Ensemble(nn.Module):
    """Ensemble of emulators; its step is the mean of the members' steps.

    Args:
        members: the emulators.
    """

    def __init__(self, members: Sequence[Emulator]) -> None:
        super().__init__()
        self.members: nn.ModuleList = nn.ModuleList(members)
        self.layout: Layout = members[0].layout
        self.determined: tuple[str, ...] = members[0].determined

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the mean over members of each output of the layout, (B, *dims)."""
        answers = [member(*inputs) for member in self.members]
        return tuple(torch.stack(each).mean(0) for each in zip(*answers, strict=True))

    def set_statistics(self, statistics: Statistics) -> None:
        """Set the normalisation of all members."""
        for member in self.members:
            assert isinstance(member, Emulator)
            member.set_statistics(statistics)

    @property
    def learned(self) -> list[Variable]:
        """Outputs of the networks, the same for all members."""
        first = self.members[0]
        assert isinstance(first, Emulator)
        return first.learned


AnyEmulator = Emulator | Ensemble


def members_of(emulator: AnyEmulator) -> list[Emulator]:
    """Return the members of an ensemble, or the emulator itself in a list."""
    if isinstance(emulator, Emulator):
        return [emulator]
    return [member for member in emulator.members if isinstance(member, Emulator)]


def build_any(config: EmulationConfig, layout: Layout) -> AnyEmulator:
    """Return an untrained emulator, or an ensemble if `uncertainty.members` > 1.

    Raises:
        ConfigError: see `build`.
    """
    number = 1 if config.uncertainty is None else config.uncertainty.members
    if number == 1:
        return _in_low_rank(build(config, layout), config)
    seeds = [config.seed, *(derive_seed(config.seed, member) for member in range(1, number))]
    return Ensemble([build(config.model_copy(update={"seed": s}), layout) for s in seeds])


def _in_low_rank(emulator: Emulator, config: EmulationConfig) -> Emulator:
    """Replace the layers in `low_rank.ranks` by untrained factors."""
    if config.low_rank is not None:
        with torch.random.fork_rng(devices=[]):
            replaced(
                emulator, config.low_rank.ranks, lambda name, layer, own: empty_factors(layer, own)
            )
    return emulator


class EnsembleTask:
    """Training task of an ensemble: all members learn from the same batches.

    The loss is the mean over members, which share no weights and are thus trained independently.

    Args:
        model: the ensemble.
        tasks: the task of each member.
    """

    def __init__(self, model: Ensemble, tasks: Sequence[EmulationTask]) -> None:
        self.model: Ensemble = model
        self.tasks = list(tasks)

    def at(self, progress: Progress) -> None:
        """Receive the position of the training."""
        for task in self.tasks:
            task.at(progress)

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean of the members' losses."""
        return torch.stack([task.loss(batch)[0] for task in self.tasks]).mean(), {}

    def metrics(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return the mean of the members' metrics."""
        each = [task.metrics(batch) for task in self.tasks]
        return {key: sum(found[key] for found in each) / len(each) for key in each[0]}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of samples."""
        return self.tasks[0].batch_size(batch)

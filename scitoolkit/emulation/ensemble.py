"""Ensembles: emulators of one layout with different initialisations."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.emulator import Emulator, build
from scitoolkit.emulation.normalized_network import Statistics
from scitoolkit.emulation.variables import Layout, Variable
from scitoolkit.ops.low_rank import empty_factors, replaced
from scitoolkit.surrogate.ensemble import Members, member_seeds


class Ensemble(Members):
    """Ensemble of emulators; its step is the mean of the members' steps.

    Args:
        members: the emulators.
    """

    def __init__(self, members: Sequence[Emulator]) -> None:
        super().__init__(members)
        self.layout: Layout = members[0].layout
        self.determined: tuple[str, ...] = members[0].determined

    def set_statistics(self, statistics: Statistics) -> None:
        """Set the normalisation of all members."""
        for member in members_of(self):
            member.set_statistics(statistics)

    @property
    def learned(self) -> list[Variable]:
        """Outputs of the networks, the same for all members."""
        return members_of(self)[0].learned


class NoiseEnsemble(Ensemble):
    """Members that are one emulator and differ by the noise of their steps.

    Args:
        emulator: with noise as an input.
        members: number of members.
        seed: of the noise.
    """

    def __init__(self, emulator: Emulator, members: int, seed: int = 0) -> None:
        super().__init__([emulator] * members)
        self.seed = seed


AnyEmulator = Emulator | Ensemble


def members_of(emulator: AnyEmulator) -> list[Emulator]:
    """Return the members of an ensemble, or the emulator itself in a list."""
    if isinstance(emulator, Emulator):
        return [emulator]
    return [member for member in emulator.members if isinstance(member, Emulator)]


def with_draws(
    emulator: AnyEmulator, config: EmulationConfig, members: int | None = None
) -> AnyEmulator:
    """Return the members of a probabilistic emulator; any other emulator as it is.

    Args:
        emulator: as trained.
        config: of the job.
        members: number of members; `uncertainty.members` unless given.
    """
    if not isinstance(emulator, Emulator) or not emulator.layout.noise:
        return emulator
    assert config.uncertainty is not None
    return NoiseEnsemble(emulator, members or config.uncertainty.members, config.seed)


def build_any(config: EmulationConfig, layout: Layout) -> AnyEmulator:
    """Return an untrained emulator, or an ensemble if `uncertainty.members` > 1.

    Raises:
        ConfigError: see `build`.
    """
    members = [build_one(config, layout, seed) for seed in member_seeds(config)]
    return members[0] if len(members) == 1 else Ensemble(members)


def build_one(config: EmulationConfig, layout: Layout, seed: int) -> Emulator:
    """Return an untrained emulator, with untrained factors for the layers in `low_rank.ranks`.

    Raises:
        ConfigError: see `build`.
    """
    emulator = build(config.model_copy(update={"seed": seed}), layout)
    if config.low_rank is not None:
        with torch.random.fork_rng(devices=[]):
            replaced(
                emulator, config.low_rank.ranks, lambda name, layer, own: empty_factors(layer, own)
            )
    return emulator

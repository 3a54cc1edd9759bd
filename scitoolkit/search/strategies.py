"""What to try next: random and aging evolution; the base of successive halving and CBO.

A strategy is a function of what was issued and told so far and of a counter: the generator of
the n-th proposal is seeded by (seed, n), so there is no generator state that a crash could lose,
and replaying the events of a log gives back the strategy exactly.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scitoolkit.core.errors import ConfigError, ScitoolkitError
from scitoolkit.search.pareto import best_of
from scitoolkit.search.space import Codes, Space
from scitoolkit.search.trial import Trial

Admit = Callable[[Codes], bool]
_TRIES = 2_000


class SpaceExhausted(ScitoolkitError):
    """Every configuration that is allowed has been tried."""


@dataclass(frozen=True)
class Proposal:
    """What to try next: new codes, or (with `promote`) more budget for a known trial."""

    codes: Codes
    origin: str
    parent: int | None = None
    promote: int | None = None
    stage: int = 0
    budget: float | None = None


class Strategy(ABC):
    """Proposes configurations that were never tried before."""

    name = ""
    budgets: Sequence[int] = ()
    """Budgets that a trial may be given one after another; empty when there is only one."""

    def start(self, space: Space, seed: int, admit: Admit) -> None:
        """Begin a search: called once, before anything else."""
        self.space, self.seed, self.admit = space, seed, admit
        self.seen: set[Codes] = set()
        self.count = 0

    def ask(self) -> Proposal:
        """Return what to try next; nothing changes until it is `issued`.

        Raises:
            SpaceExhausted: there is nothing left to try.
        """
        return self.propose(random.Random((self.seed << 40) + self.count))

    @abstractmethod
    def propose(self, rng: random.Random) -> Proposal:
        """Return what to try next."""

    def issued(self, trial: Trial) -> None:
        """Take note that a trial was given to a worker."""
        self.count += 1
        self.seen.add(trial.codes)

    def tell(self, trial: Trial) -> None:  # noqa: B027 - a strategy need not learn
        """Learn from a trial that has finished a stage (it may have failed)."""

    def state(self) -> dict[str, Any]:
        """Return what a log keeps to prove that a replay has led to the same place."""
        return {"rng": [self.seed, self.count], "seen": len(self.seen)}

    def describe(self) -> dict[str, Any]:
        """Return name and settings."""
        return {"name": self.name}

    def fresh(self, rng: random.Random, draw: Callable[[], Codes]) -> Codes:
        """Return what `draw` gives, if need be after many draws, that was never tried.

        When `draw` finds nothing new, uniform samples are tried, then (if the space is small)
        everything.
        """
        refused = 0
        for attempt in range(_TRIES):
            codes = draw() if attempt < _TRIES // 2 else self.space.sample_codes(rng)
            if codes in self.seen:
                continue
            if self.admit(codes):
                return codes
            refused += 1
        if len(self.seen) < self.space.size <= 100_000 and (left := self._enumerate(rng)):
            return left
        if refused > _TRIES // 2 and not self.seen:
            raise ConfigError(
                f"none of {refused} sampled configurations keeps the limits on cost",
                where="space",
                fix="a larger limit, or smaller choices",
            )
        raise SpaceExhausted(
            f"nothing new was found after {len(self.seen)} configurations",
            where=f"space of {self.space.size} configurations",
        )

    def _enumerate(self, rng: random.Random) -> Codes | None:
        left = [c for c in all_codes(self.space) if c not in self.seen and self.admit(c)]
        return rng.choice(left) if left else None


def all_codes(space: Space) -> list[Codes]:
    """Return every configuration of a finite space that `where` allows, each once."""
    found: list[list[Any]] = [[None] * len(space.variables)]
    kinds = list(space.variables.values())
    for i in space.order:
        grown = []
        for codes in found:
            options = range(int(kinds[i].levels)) if space.active(i, codes) else [None]
            grown += [[*codes[:i], option, *codes[i + 1 :]] for option in options]
        found = grown
    return [tuple(codes) for codes in found if space.allows(codes)]


class RandomSearch(Strategy):
    """Uniform samples, each configuration at most once."""

    name = "random"

    def propose(self, rng: random.Random) -> Proposal:
        """Return a new sample."""
        return Proposal(self.fresh(rng, lambda: self.space.sample_codes(rng)), "random")


class AgingEvolution(Strategy):
    """Regularised evolution: the oldest of a population dies, the best of a sample has a child.

    Children differ from their parent in one variable and are never a configuration that was
    tried before: a family whose neighbourhood is exhausted mutates twice, and so on. With
    several objectives the parent is the least crowded point of the sample's Pareto front.

    Args:
        population: number of youngest trials that can have children.
        sample: number of them that compete to be the parent.

    Source:
        Real et al. 2019, arXiv:1802.01548; used with 100 and 10 by Maulik et al. 2020.
    """

    name = "evolution"

    def __init__(self, population: int = 100, sample: int = 10) -> None:
        if not 1 <= sample <= population:
            raise ConfigError(
                f"population {population} and sample {sample}", where="strategy",
                allowed="1 <= sample <= population",
            )  # fmt: skip
        self.population, self.sample = population, sample

    def start(self, space: Space, seed: int, admit: Admit) -> None:
        """Begin with an empty population."""
        super().start(space, seed, admit)
        self.alive: deque[Trial] = deque(maxlen=self.population)

    def propose(self, rng: random.Random) -> Proposal:
        """Return a random sample while the population grows, then a child."""
        if self.count < self.population or len(self.alive) < self.sample:
            return Proposal(self.fresh(rng, lambda: self.space.sample_codes(rng)), "random")
        parent = self._parent(rng)
        draws = 0

        def child() -> Codes:
            nonlocal draws
            codes = parent.codes
            for _ in range(1 + draws // 50):
                codes = self.space.mutate_codes(codes, rng)
            draws += 1
            return codes

        return Proposal(self.fresh(rng, child), "mutation", parent.id)

    def _parent(self, rng: random.Random) -> Trial:
        rivals = rng.sample(range(len(self.alive)), self.sample)
        trials = [self.alive[i] for i in sorted(rivals)]
        # What was trained for longer is known better: compare the longest trained only.
        longest = max(t.reached for t in trials)
        trials = [t for t in trials if t.reached == longest]
        return trials[best_of([t.values for t in trials])]

    def tell(self, trial: Trial) -> None:
        """Let a trial that succeeded for the first time join the population."""
        if trial.status == "done" and trial.reached == 0:
            self.alive.append(trial)

    def state(self) -> dict[str, Any]:
        """Return counter and population."""
        return {**super().state(), "population": [t.id for t in self.alive]}

    def describe(self) -> dict[str, Any]:
        """Return name and settings."""
        return {"name": self.name, "population": self.population, "sample": self.sample}

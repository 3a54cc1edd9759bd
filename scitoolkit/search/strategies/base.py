"""Search strategies: what proposes the next configuration, and the life of a trial.

A strategy is a function of the issued and observed trials and of a counter. The generator of the
n-th proposal is seeded by (seed, n), so there is no generator state that a crash could lose, and
replaying the events of a log restores the strategy exactly. The life of a trial:

    start(space, seed, feasible)      once, before anything else, live and on replay
    ask() -> Proposal                 live only: must change nothing, may be called repeatedly
    on_issue(trial)                   the trial was handed to a worker (live), or read from the log
    observe(trial)                    the trial finished a stage, done or failed
    state()                           written into the log now and then; a replay must reach it

Trials finish in any order, and several may be issued before the first is observed. A proposal
with `promote` gives a known trial the next budget: it is issued and observed once more, with
`trial.stage` one higher.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scitoolkit.core.errors import ConfigError, ScitoolkitError
from scitoolkit.search.space import Codes, Space
from scitoolkit.search.trial import Trial

Feasible = Callable[[Codes], bool]
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

    count: int

    name = ""
    budgets: Sequence[int] = ()
    """Budgets that a trial may be given one after another; empty when there is only one."""

    def start(self, space: Space, seed: int, feasible: Feasible) -> None:
        """Begin a search: called once, before anything else."""
        self.space: Space = space
        self.seed: int = seed
        self.feasible: Feasible = feasible
        self.seen: set[Codes] = set()
        self.count = 0

    def ask(self) -> Proposal:
        """Return what to try next; nothing changes until it is issued.

        Raises:
            SpaceExhausted: there is nothing left to try.
        """
        return self.propose(random.Random((self.seed << 40) + self.count))

    @abstractmethod
    def propose(self, rng: random.Random) -> Proposal:
        """Return what to try next."""

    def on_issue(self, trial: Trial) -> None:
        """Record that a trial was given to a worker."""
        self.count += 1
        self.seen.add(trial.codes)

    def observe(self, trial: Trial) -> None:  # noqa: B027 - a strategy need not learn
        """Learn from a trial that has finished a stage (it may have failed)."""

    def state(self) -> dict[str, Any]:
        """Return what a log keeps to prove that a replay has led to the same place."""
        return {"rng": [self.seed, self.count], "seen": len(self.seen)}

    def describe(self) -> dict[str, Any]:
        """Return name and settings for the head of the log; a resumed search must have the same."""
        return {"name": self.name}

    def sample_unseen(self, rng: random.Random, draw: Callable[[], Codes]) -> Codes:
        """Return a configuration from `draw`, repeated as needed, that was never tried.

        When `draw` finds nothing new, uniform samples are tried, then (if the space is small)
        everything.
        """
        refused = 0
        for attempt in range(_TRIES):
            codes = draw() if attempt < _TRIES // 2 else self.space.sample_codes(rng)
            if codes in self.seen:
                continue
            if self.feasible(codes):
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
        left = [c for c in all_codes(self.space) if c not in self.seen and self.feasible(c)]
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

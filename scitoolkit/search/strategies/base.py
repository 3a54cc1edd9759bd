"""Base class of search strategies, and the life cycle of a trial.

A strategy is a function of the issued and observed trials and of a counter. The generator of the
n-th proposal is seeded by (seed, n), so no generator state is lost in a crash, and replaying the
events of a log restores the strategy exactly. Calls in the life cycle of a trial:

    start(space, seed, feasible)      once, first, live and on replay
    ask() -> Proposal                 live only; must not change any state, may be repeated
    on_issue(trial)                   the trial was submitted (live) or read from the log
    observe(trial)                    the trial finished a stage, with a result or a failure
    state()                           written to the log regularly and compared on replay

Trials finish in any order, and several may be issued before the first is observed. A proposal
with `promote` assigns the next budget to a known trial, which is then issued and observed again
with `trial.stage` incremented.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scitoolkit.core.errors import ConfigError, ScitoolkitError
from scitoolkit.search.space import ENUMERABLE, Codes, Space
from scitoolkit.search.trial import Trial

Feasible = Callable[[Codes], bool]
_TRIES = 2_000
_FEW = 20
"""Attempts after which it is worth asking whether all configurations were evaluated."""


class SpaceExhausted(ScitoolkitError):
    """Every allowed configuration has been evaluated."""


@dataclass(frozen=True)
class Proposal:
    """Next evaluation: a new configuration or, with `promote`, a larger budget for a known trial.

    Attributes:
        codes: of the configuration.
        origin: how it was found, such as `random` or `mutation`.
        parent: trial from which it was mutated.
        promote: trial that receives the next budget; None for a new configuration.
        stage: number of the budget.
        budget: at which the evaluation stops, None for its default.
    """

    codes: Codes
    origin: str
    parent: int | None = None
    promote: int | None = None
    stage: int = 0
    budget: float | None = None


class Strategy(ABC):
    """Proposes configurations, each at most once."""

    count: int

    name = ""
    uses_priors = True
    """Whether proposals prefer the expected values of parameters."""
    budgets: Sequence[int] = ()
    """Successive budgets of a trial; empty for a single budget."""

    def start(self, space: Space, seed: int, feasible: Feasible) -> None:
        """Initialise the state of a search.

        Args:
            space: search space.
            seed: of all proposals.
            feasible: whether codes satisfy the limits on costs.

        Raises:
            ConfigError: the space has priors that the strategy does not use.
        """
        named = [n for n, kind in space.variables.items() if kind.prior is not None]
        if named and not self.uses_priors:
            raise ConfigError(
                f"the strategy {self.name!r} uses no priors",
                where=f"space.{named[0]}.prior",
                fix="another strategy, or enqueue the expected configuration",
            )
        self.space: Space = space
        self.seed: int = seed
        self.feasible: Feasible = feasible
        self.seen: set[Codes] = set()
        self.count = 0

    def ask(self) -> Proposal:
        """Return the next proposal; the state changes only when it is issued.

        Raises:
            SpaceExhausted: no configuration is left to evaluate.
        """
        return self.propose(random.Random((self.seed << 40) + self.count))

    @abstractmethod
    def propose(self, rng: random.Random) -> Proposal:
        """Return the next proposal, drawn with `rng`."""

    def on_issue(self, trial: Trial) -> None:
        """Record that a trial was submitted to a worker."""
        self.count += 1
        self.seen.add(trial.codes)

    def observe(self, trial: Trial) -> None:  # noqa: B027 - not every strategy uses results
        """Update the strategy with a trial that finished a stage or failed."""

    def state(self) -> dict[str, Any]:
        """Return a summary of the state, logged to verify that a replay reaches the same state."""
        return {"rng": [self.seed, self.count], "seen": len(self.seen)}

    def describe(self) -> dict[str, Any]:
        """Return name and settings for the log's header; they must be equal on resume."""
        return {"name": self.name}

    def sample_unseen(self, rng: random.Random, draw: Callable[[], Codes]) -> Codes:
        """Return a new feasible configuration, by rejection sampling from `draw`.

        If `draw` finds none, uniform samples are used, and then, in a small space, enumeration.

        Raises:
            ConfigError: no sampled configuration satisfies the limits on costs.
            SpaceExhausted: no new configuration was found.
        """
        refused = 0
        for attempt in range(_TRIES):
            codes = draw() if attempt < _TRIES // 2 else self.space.sample_codes(rng)
            if codes in self.seen:
                if attempt == _FEW and self._all_seen:
                    break
                continue
            if self.feasible(codes):
                return codes
            refused += 1
        if len(self.seen) < self.space.size <= ENUMERABLE and (left := self._enumerate(rng)):
            return left
        if refused > _TRIES // 2 and not self.seen:
            raise ConfigError(
                f"none of {refused} sampled configurations satisfies the limits on cost",
                where="space",
                fix="a larger limit, or smaller choices",
            )
        raise SpaceExhausted(
            f"no new configuration was found after {len(self.seen)}",
            where=f"space of {self.space.size} configurations",
        )

    def _enumerate(self, rng: random.Random) -> Codes | None:
        left = [c for c in self.space.all_codes if c not in self.seen and self.feasible(c)]
        return rng.choice(left) if left else None

    @property
    def _all_seen(self) -> bool:
        """Whether no new configuration of a small space satisfies `where`, which few may do."""
        if self.space.where is None or self.space.size > ENUMERABLE:
            return False
        return all(codes in self.seen for codes in self.space.all_codes)

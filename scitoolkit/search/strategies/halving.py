"""Asynchronous successive halving (ASHA) on top of any search strategy."""

from __future__ import annotations

import bisect
import random
from typing import Any

from pydantic import Field, PositiveInt, model_validator

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError
from scitoolkit.search.space import Space
from scitoolkit.search.strategies.base import Feasible, Proposal, Strategy
from scitoolkit.search.trial import Trial


class HalvingConfig(Config):
    """Successive halving on top of any strategy; see `SuccessiveHalving`.

    Attributes:
        smallest: first budget.
        largest: last budget.
        factor: ratio between successive budgets.
        brackets: number of brackets, which start at successive budgets (Hyperband).
    """

    smallest: PositiveInt
    largest: PositiveInt
    factor: int = Field(default=3, ge=2)
    brackets: PositiveInt = 1

    @model_validator(mode="after")
    def _fits(self) -> HalvingConfig:
        try:
            _ = rungs(self.smallest, self.largest, self.factor, self.brackets)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self


class SuccessiveHalving(Strategy):
    """Trains new configurations with a small budget and promotes the best to larger budgets.

    The best 1/`factor` of the trials finished at a budget are promoted to `factor` times that
    budget and continue from their checkpoints. Promotions do not wait for a rung to be complete.
    With several brackets, which start at successive budgets and promote among themselves, this is
    asynchronous Hyperband: it loses less where small budgets mislead. A new configuration enters a
    bracket at random, so that every bracket receives the same total budget in the mean.

    Args:
        base: strategy that proposes new configurations.
        smallest: first budget, in epochs (or the unit of `budget_key`).
        largest: last budget.
        factor: ratio between successive budgets; 1/`factor` of the trials are promoted.
        brackets: number of brackets.

    Raises:
        ConfigError: not 1 <= smallest < largest and factor >= 2, or more brackets than budgets.

    Source:
        ASHA, Li et al. 2020, arXiv:1810.05934, algorithm 2; Hyperband, Li et al. 2018,
        arXiv:1603.06560, algorithm 1.

    Example:
        >>> from scitoolkit.search import RandomSearch
        >>> SuccessiveHalving(RandomSearch(), smallest=2, largest=20).budgets
        [2, 6, 20]
    """

    name = "halving"

    def __init__(
        self, base: Strategy, smallest: int, largest: int, factor: int = 3, brackets: int = 1
    ) -> None:
        self.base: Strategy = base
        self.factor, self.brackets = factor, brackets
        self.budgets: list[int] = rungs(smallest, largest, factor, brackets)

    def start(self, space: Space, seed: int, feasible: Feasible) -> None:
        """Initialise with empty rungs."""
        super().start(space, seed, feasible)
        self.base.start(space, seed, feasible)
        self.rungs: list[list[list[tuple[Any, int]]]] = [
            [[] for _ in self.budgets] for _ in range(self.brackets)
        ]
        self.promoted: list[set[int]] = [set() for _ in self.budgets]
        self.codes: dict[int, Any] = {}

    def propose(self, rng: random.Random) -> Proposal:
        """Return the best promotion, from the largest budget down, or a new configuration."""
        # Largest budgets first: a worker that is free completes a good trial before new ones begin.
        for stage in reversed(range(len(self.budgets) - 1)):
            for bracket in self.rungs:
                for _, trial in bracket[stage][: len(bracket[stage]) // self.factor]:
                    if trial not in self.promoted[stage]:
                        return Proposal(
                            self.codes[trial],
                            "promotion",
                            promote=trial,
                            stage=stage + 1,
                            budget=self.budgets[stage + 1],
                        )
        new = self.base.propose(rng)
        first = self._bracket(rng)
        return Proposal(new.codes, new.origin, new.parent, stage=first, budget=self.budgets[first])

    def _bracket(self, rng: random.Random) -> int:
        """Draw a bracket: those with s promotions receive factor^s / (s + 1) configurations."""
        if self.brackets == 1:
            return 0
        promotions = [len(self.budgets) - 1 - first for first in range(self.brackets)]
        weights = [self.factor**s / (s + 1) for s in promotions]
        return rng.choices(range(self.brackets), weights)[0]

    def on_issue(self, trial: Trial) -> None:
        """Record a promotion, or pass a new trial to the base strategy."""
        if trial.id in self.codes:
            self.promoted[trial.stage - 1].add(trial.id)
            return
        super().on_issue(trial)
        self.codes[trial.id] = trial.codes
        self.base.on_issue(trial)

    def observe(self, trial: Trial) -> None:
        """Add a successful trial to its rung; failed trials are never promoted."""
        if trial.status == "done":
            rung = self.rungs[trial.first_stage][trial.reached]
            bisect.insort(rung, (trial.values, trial.id))
        self.base.observe(trial)

    def state(self) -> dict[str, Any]:
        """Return the state of the base strategy and the sizes of the rungs."""
        sizes = [[len(rung) for rung in bracket] for bracket in self.rungs]
        return {**self.base.state(), "rungs": sizes if self.brackets > 1 else sizes[0]}

    def describe(self) -> dict[str, Any]:
        """Return name and settings, including those of the base strategy."""
        return {
            "name": self.name,
            "base": self.base.describe(),
            "budgets": self.budgets,
            "factor": self.factor,
            **({"brackets": self.brackets} if self.brackets > 1 else {}),
        }


def rungs(smallest: int, largest: int, factor: int, brackets: int) -> list[int]:
    """Return the successive budgets of halving.

    Raises:
        ConfigError: not 1 <= smallest < largest and factor >= 2, or more brackets than budgets.

    Example:
        >>> rungs(1, 25, 3, 1)
        [1, 3, 9, 25]
    """
    if not (1 <= smallest < largest and factor >= 2):
        raise ConfigError(
            f"smallest {smallest}, largest {largest}, factor {factor}",
            where="strategy.halving",
            allowed="1 <= smallest < largest, factor >= 2",
        )
    budgets = [smallest]
    while budgets[-1] * factor <= largest:
        budgets.append(budgets[-1] * factor)
    # Replace a last rung just below `largest` by `largest` itself.
    near = len(budgets) > 1 and largest < budgets[-1] * factor**0.5
    budgets = list(dict.fromkeys([*(budgets[:-1] if near else budgets), largest]))
    if not 1 <= brackets <= len(budgets):
        raise ConfigError(
            f"{brackets} brackets",
            where="strategy.halving",
            allowed=f"1 ... {len(budgets)}, one for every budget of {budgets}",
        )
    return budgets

"""Asynchronous successive halving (ASHA) on top of any search strategy."""

from __future__ import annotations

import bisect
import random
from typing import Any

from pydantic import Field, PositiveInt

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
    """

    smallest: PositiveInt
    largest: PositiveInt
    factor: int = Field(default=3, ge=2)


class SuccessiveHalving(Strategy):
    """Trains new configurations with a small budget and promotes the best to larger budgets.

    The best 1/`factor` of the trials finished at a budget are promoted to `factor` times that
    budget and continue from their checkpoints. Promotions do not wait for a rung to be complete.

    Args:
        base: strategy that proposes new configurations.
        smallest: first budget, in epochs (or the unit of `budget_key`).
        largest: last budget.
        factor: ratio between successive budgets; 1/`factor` of the trials are promoted.

    Raises:
        ConfigError: not 1 <= smallest < largest and factor >= 2.

    Source:
        ASHA, Li et al. 2020, arXiv:1810.05934, algorithm 2.

    Example:
        >>> from scitoolkit.search import RandomSearch
        >>> SuccessiveHalving(RandomSearch(), smallest=2, largest=20).budgets
        [2, 6, 20]
    """

    name = "halving"

    def __init__(self, base: Strategy, smallest: int, largest: int, factor: int = 3) -> None:
        if not (1 <= smallest < largest and factor >= 2):
            raise ConfigError(
                f"smallest {smallest}, largest {largest}, factor {factor}",
                where="strategy.halving",
                allowed="1 <= smallest < largest, factor >= 2",
            )
        self.base: Strategy = base
        self.factor: int = factor
        self.budgets = [smallest]
        while self.budgets[-1] * factor <= largest:
            self.budgets.append(self.budgets[-1] * factor)
        # Replace a last rung just below `largest` by `largest` itself.
        near = len(self.budgets) > 1 and largest < self.budgets[-1] * factor**0.5
        self.budgets = [*(self.budgets[:-1] if near else self.budgets), largest]
        self.budgets: list[int] = list(dict.fromkeys(self.budgets))

    def start(self, space: Space, seed: int, feasible: Feasible) -> None:
        """Initialise with empty rungs."""
        super().start(space, seed, feasible)
        self.base.start(space, seed, feasible)
        self.rungs: list[list[tuple[Any, int]]] = [[] for _ in self.budgets]
        self.promoted: list[set[int]] = [set() for _ in self.budgets]
        self.codes: dict[int, Any] = {}

    def propose(self, rng: random.Random) -> Proposal:
        """Return the best promotion, from the largest budget down, or a new configuration."""
        for stage in reversed(range(len(self.budgets) - 1)):
            rung, promoted = self.rungs[stage], self.promoted[stage]
            for _, trial in rung[: len(rung) // self.factor]:
                if trial not in promoted:
                    return Proposal(
                        self.codes[trial],
                        "promotion",
                        promote=trial,
                        stage=stage + 1,
                        budget=self.budgets[stage + 1],
                    )
        new = self.base.propose(rng)
        return Proposal(new.codes, new.origin, new.parent, budget=self.budgets[0])

    def on_issue(self, trial: Trial) -> None:
        """Record a promotion, or pass a new trial to the base strategy."""
        if trial.stage:
            self.promoted[trial.stage - 1].add(trial.id)
            return
        super().on_issue(trial)
        self.codes[trial.id] = trial.codes
        self.base.on_issue(trial)

    def observe(self, trial: Trial) -> None:
        """Add a successful trial to its rung; failed trials are never promoted."""
        if trial.status == "done":
            bisect.insort(self.rungs[trial.reached], (trial.values, trial.id))
        self.base.observe(trial)

    def state(self) -> dict[str, Any]:
        """Return the state of the base strategy and the sizes of the rungs."""
        return {**self.base.state(), "rungs": [len(rung) for rung in self.rungs]}

    def describe(self) -> dict[str, Any]:
        """Return name and settings, including those of the base strategy."""
        return {
            "name": self.name,
            "base": self.base.describe(),
            "budgets": self.budgets,
            "factor": self.factor,
        }

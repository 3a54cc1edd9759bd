"""A search strategy in one file: random samples, then neighbours of the best configuration."""

from __future__ import annotations

import random
from typing import Any, Literal

from pydantic import PositiveInt

from scitoolkit.search.space import Space
from scitoolkit.search.strategies import Feasible, Proposal, Strategy, StrategyConfig
from scitoolkit.search.trial import Trial


class HillClimb(Strategy):
    """Proposes configurations that differ from the best one in a single variable."""

    name = "hill_climb"

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def start(self, space: Space, seed: int, feasible: Feasible) -> None:
        """Begin without a best trial."""
        super().start(space, seed, feasible)
        self.best: Trial | None = None

    def propose(self, rng: random.Random) -> Proposal:
        """Return a random sample while few are known, then a neighbour of the best."""
        best = self.best
        if best is None or self.count < self.samples:
            return Proposal(self.sample_unseen(rng, lambda: self.space.sample_codes(rng)), "random")
        codes = self.sample_unseen(rng, lambda: self.space.mutate_codes(best.codes, rng))
        return Proposal(codes, "neighbour", best.id)

    def observe(self, trial: Trial) -> None:
        """Keep the trial if it is the best so far."""
        if trial.status == "done" and (self.best is None or trial.values < self.best.values):
            self.best = trial

    def state(self) -> dict[str, Any]:
        """Return counter and best trial."""
        return {**super().state(), "best": None if self.best is None else self.best.id}

    def describe(self) -> dict[str, Any]:
        """Return name and settings."""
        return {"name": self.name, "samples": self.samples}


class HillClimbConfig(StrategyConfig):
    """Neighbours of the best configuration, after some random `samples`."""

    name: Literal["hill_climb"] = "hill_climb"
    samples: PositiveInt = 8

    def build_search(self) -> HillClimb:
        """Return the strategy."""
        return HillClimb(self.samples)

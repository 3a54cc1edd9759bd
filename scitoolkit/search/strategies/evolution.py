"""Search strategy `evolution`: regularised (aging) evolution."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt, model_validator

from scitoolkit.core.errors import ConfigError
from scitoolkit.search.pareto import best_of
from scitoolkit.search.space import Codes, Space
from scitoolkit.search.strategies.base import Feasible, Proposal, Strategy
from scitoolkit.search.strategies.config import StrategyConfig
from scitoolkit.search.trial import Trial


class AgingEvolution(Strategy):
    """Regularised evolution: tournament selection, mutation, and removal of the oldest member.

    A child differs from its parent in one variable; if all such children were evaluated, in two,
    and so on. With several objectives the parent is the least crowded point of the tournament's
    Pareto front.

    Args:
        population: number of latest successful trials that can become parents.
        tournament_size: number of randomly drawn members that compete to become the parent.

    Raises:
        ConfigError: not 1 <= tournament_size <= population.

    Source:
        Real et al. 2019, arXiv:1802.01548; used with 100 and 10 by Maulik et al. 2020.
    """

    name = "evolution"

    def __init__(self, population: int = 100, tournament_size: int = 10) -> None:
        if not 1 <= tournament_size <= population:
            raise ConfigError(
                f"population {population} and tournament_size {tournament_size}",
                where="strategy",
                allowed="1 <= tournament_size <= population",
            )
        self.population: int = population
        self.tournament_size: int = tournament_size

    def start(self, space: Space, seed: int, feasible: Feasible) -> None:
        """Initialise with an empty population."""
        super().start(space, seed, feasible)
        self.alive: deque[Trial] = deque(maxlen=self.population)

    def propose(self, rng: random.Random) -> Proposal:
        """Return a random sample until the population is full, then a mutation of a parent."""
        if self.count < self.population or len(self.alive) < self.tournament_size:
            return Proposal(self.sample_unseen(rng, lambda: self.space.sample_codes(rng)), "random")
        parent = self._parent(rng)
        draws = 0

        def child() -> Codes:
            nonlocal draws
            codes = parent.codes
            for _ in range(1 + draws // 50):
                codes = self.space.mutate_codes(codes, rng)
            draws += 1
            return codes

        return Proposal(self.sample_unseen(rng, child), "mutation", parent.id)

    def _parent(self, rng: random.Random) -> Trial:
        drawn = rng.sample(range(len(self.alive)), self.tournament_size)
        trials = [self.alive[i] for i in sorted(drawn)]
        least = min(t.violation for t in trials)
        trials = [t for t in trials if t.violation == least]
        # Scores at larger budgets are more reliable: compare trials at the largest budget only.
        longest = max(t.reached for t in trials)
        trials = [t for t in trials if t.reached == longest]
        return trials[best_of([t.values for t in trials])]

    def observe(self, trial: Trial) -> None:
        """Add a trial to the population when it finishes its first stage."""
        if trial.status == "done" and trial.reached == trial.first_stage:
            self.alive.append(trial)

    def state(self) -> dict[str, Any]:
        """Return the counter and the numbers of the population's trials."""
        return {**super().state(), "population": [t.id for t in self.alive]}

    def describe(self) -> dict[str, Any]:
        """Return name and settings; `sample` is the tournament size in logs of version 1."""
        return {"name": self.name, "population": self.population, "sample": self.tournament_size}


class EvolutionConfig(StrategyConfig):
    """Regularised evolution: mutations of tournament winners; the oldest trials are removed.

    Attributes:
        population: number of latest successful trials that can become parents.
        tournament_size: number of randomly drawn members that compete to become the parent.
    """

    renamed: ClassVar[Mapping[str, str]] = {"sample": "tournament_size"}

    name: Literal["evolution"] = "evolution"
    population: PositiveInt = 100
    tournament_size: PositiveInt = 10

    @model_validator(mode="after")
    def _tournament_fits(self) -> EvolutionConfig:
        _ = self.build_search()
        return self

    def build_search(self) -> AgingEvolution:
        """Return the strategy."""
        return AgingEvolution(self.population, self.tournament_size)

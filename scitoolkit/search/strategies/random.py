"""Search strategy `random`: uniform random search."""

from __future__ import annotations

import random
from typing import Literal

from scitoolkit.search.strategies.base import Proposal, Strategy
from scitoolkit.search.strategies.config import StrategyConfig


class RandomSearch(Strategy):
    """Uniform samples, each configuration at most once."""

    name = "random"

    def propose(self, rng: random.Random) -> Proposal:
        """Return a uniform sample that was not evaluated yet."""
        return Proposal(self.sample_unseen(rng, lambda: self.space.sample_codes(rng)), "random")


class RandomConfig(StrategyConfig):
    """Uniform samples, each configuration at most once."""

    name: Literal["random"] = "random"

    def build_search(self) -> RandomSearch:
        """Return the strategy."""
        return RandomSearch()

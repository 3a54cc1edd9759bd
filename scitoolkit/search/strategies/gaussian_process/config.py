"""Configuration of the search strategy `gaussian_process`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from scitoolkit.search.strategies.base import Strategy
from scitoolkit.search.strategies.config import StrategyConfig


class GaussianProcessConfig(StrategyConfig):
    """Bayesian optimisation by a Gaussian process, followed by evolution; the default strategy.

    Attributes:
        start: number of configurations in the space-filling initial design.
        until: number of trials after which evolution takes over.
    """

    name: Literal["gaussian_process"] = "gaussian_process"
    start: PositiveInt = 8
    until: int = Field(default=200, ge=1)

    def build_search(self) -> Strategy:
        """Return the strategy."""
        from scitoolkit.search.strategies.gaussian_process.strategy import GaussianProcessSearch

        return GaussianProcessSearch(self.start, self.until)

"""Configuration of the search strategy `gaussian_process`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from scitoolkit.search.strategies.base import Strategy
from scitoolkit.search.strategies.config import StrategyConfig


class GaussianProcessConfig(StrategyConfig):
    """Bayesian optimisation by a Gaussian process, then evolution; the default.

    Attributes:
        start: configurations of a space-filling design before the first model.
        until: trials after which evolution goes on.
    """

    name: Literal["gaussian_process"] = "gaussian_process"
    start: PositiveInt = 8
    until: int = Field(default=200, ge=1)

    def build_search(self) -> Strategy:
        """Return the strategy."""
        from scitoolkit.search.strategies.gaussian_process.strategy import GaussianProcessSearch

        return GaussianProcessSearch(self.start, self.until)

"""The plug-in kind `search strategy` and the base class of its configurations."""

from __future__ import annotations

from abc import abstractmethod

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Kind, NeedsPackages
from scitoolkit.search.strategies.base import Strategy
from scitoolkit.search.strategies.halving import HalvingConfig, SuccessiveHalving


class StrategyConfig(NeedsPackages, Config):
    """Base of a search strategy's configuration: its settings, and successive halving on top.

    Attributes:
        halving: spend small budgets first.
    """

    name: str
    halving: HalvingConfig | None = None

    @abstractmethod
    def build_search(self) -> Strategy:
        """Return the strategy, without halving."""

    def build(self) -> Strategy:
        """Return the strategy, with halving where it is asked for."""
        strategy, limits = self.build_search(), self.halving
        if limits is None:
            return strategy
        return SuccessiveHalving(strategy, limits.smallest, limits.largest, limits.factor)


strategies: Kind[type[StrategyConfig]] = Kind(
    "search strategy",
    "proposes the next configuration of a search",
    contract="scitoolkit.testing:StrategyContract",
)

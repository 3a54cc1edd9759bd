"""Plug-in kind `search strategy` and the base class of its configurations."""

from __future__ import annotations

from abc import abstractmethod

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Kind, NeedsPackages
from scitoolkit.search.strategies.base import Strategy
from scitoolkit.search.strategies.halving import HalvingConfig, SuccessiveHalving


class StrategyConfig(NeedsPackages, Config):
    """Base class of strategy configurations; every strategy can be combined with halving.

    Attributes:
        halving: successive halving over training budgets; None trains with the full budget.
    """

    name: str
    halving: HalvingConfig | None = None

    @abstractmethod
    def build_search(self) -> Strategy:
        """Return the strategy, without halving."""

    def build(self) -> Strategy:
        """Return the strategy, wrapped in `SuccessiveHalving` if `halving` is set."""
        strategy, limits = self.build_search(), self.halving
        if limits is None:
            return strategy
        return SuccessiveHalving(
            strategy, limits.smallest, limits.largest, limits.factor, limits.brackets
        )


strategies: Kind[type[StrategyConfig]] = Kind(
    "search strategy",
    "proposes the next configuration of a search",
    contract="scitoolkit.testing:StrategyContract",
)

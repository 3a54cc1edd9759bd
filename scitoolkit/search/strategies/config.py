"""The plug-in kind `search strategy` and the base class of its configurations."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from typing import ClassVar

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Kind
from scitoolkit.search.strategies.base import Strategy
from scitoolkit.search.strategies.halving import HalvingConfig, SuccessiveHalving


class StrategyConfig(Config):
    """Base of a search strategy's configuration: its settings, and successive halving on top.

    Attributes:
        requires: importable packages that the strategy needs.
        halving: spend small budgets first.
    """

    requires: ClassVar[tuple[str, ...]] = ()

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

    @classmethod
    def unavailable(cls) -> str:
        """Return why the strategy cannot be used on this machine, "" if it can."""
        missing = [p for p in cls.requires if importlib.util.find_spec(p) is None]
        return f"{' and '.join(missing)} is not installed" if missing else ""


strategies: Kind[type[StrategyConfig]] = Kind(
    "search strategy",
    "proposes the next configuration of a search",
    contract="scitoolkit.testing:StrategyContract",
)

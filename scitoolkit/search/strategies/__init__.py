"""Search strategies: plug-in kind `search strategy`, base classes and built-in members."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.search.strategies.base import Feasible as Feasible
    from scitoolkit.search.strategies.base import Proposal as Proposal
    from scitoolkit.search.strategies.base import SpaceExhausted as SpaceExhausted
    from scitoolkit.search.strategies.base import Strategy as Strategy
    from scitoolkit.search.strategies.config import StrategyConfig as StrategyConfig
    from scitoolkit.search.strategies.config import strategies as strategies
    from scitoolkit.search.strategies.evolution import AgingEvolution as AgingEvolution
    from scitoolkit.search.strategies.gaussian_process.strategy import (
        GaussianProcessSearch as GaussianProcessSearch,
    )
    from scitoolkit.search.strategies.halving import SuccessiveHalving as SuccessiveHalving
    from scitoolkit.search.strategies.random import RandomSearch as RandomSearch

_HOMES = {
    "AgingEvolution": "evolution",
    "Feasible": "base",
    "GaussianProcessSearch": "gaussian_process.strategy",
    "Proposal": "base",
    "RandomSearch": "random",
    "SpaceExhausted": "base",
    "Strategy": "base",
    "StrategyConfig": "config",
    "SuccessiveHalving": "halving",
    "strategies": "config",
}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())

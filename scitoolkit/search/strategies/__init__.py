"""Search strategies: the plug-in kind `search strategy`, its base classes and our members."""

from scitoolkit.search.strategies.base import Feasible, Proposal, SpaceExhausted, Strategy
from scitoolkit.search.strategies.config import StrategyConfig, strategies
from scitoolkit.search.strategies.evolution import AgingEvolution
from scitoolkit.search.strategies.gaussian_process.strategy import GaussianProcessSearch
from scitoolkit.search.strategies.halving import SuccessiveHalving
from scitoolkit.search.strategies.random import RandomSearch

__all__ = [
    "AgingEvolution",
    "Feasible",
    "GaussianProcessSearch",
    "Proposal",
    "RandomSearch",
    "SpaceExhausted",
    "Strategy",
    "StrategyConfig",
    "SuccessiveHalving",
    "strategies",
]

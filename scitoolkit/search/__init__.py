"""Hyperparameter and architecture search: spaces, strategies, evaluators, crash-safe trial log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.search import spaces as spaces
    from scitoolkit.search.declarations import chain as chain
    from scitoolkit.search.declarations import choice as choice
    from scitoolkit.search.declarations import integer as integer
    from scitoolkit.search.declarations import real as real
    from scitoolkit.search.evaluators import Evaluator as Evaluator
    from scitoolkit.search.evaluators import EvaluatorConfig as EvaluatorConfig
    from scitoolkit.search.evaluators import InProcess as InProcess
    from scitoolkit.search.evaluators import Limits as Limits
    from scitoolkit.search.evaluators import Simulated as Simulated
    from scitoolkit.search.evaluators import Threads as Threads
    from scitoolkit.search.evaluators.deephyper import DeepHyperEvaluator as DeepHyperEvaluator
    from scitoolkit.search.evaluators.processes import Processes as Processes
    from scitoolkit.search.history import History as History
    from scitoolkit.search.history import load_history as load_history
    from scitoolkit.search.manager import Search as Search
    from scitoolkit.search.pruning import MedianPruning as MedianPruning
    from scitoolkit.search.space import Space as Space
    from scitoolkit.search.strategies import Proposal as Proposal
    from scitoolkit.search.strategies import Strategy as Strategy
    from scitoolkit.search.strategies import StrategyConfig as StrategyConfig
    from scitoolkit.search.strategies.bayesian import BayesianSearch as BayesianSearch
    from scitoolkit.search.strategies.evolution import AgingEvolution as AgingEvolution
    from scitoolkit.search.strategies.gaussian_process.strategy import (
        GaussianProcessSearch as GaussianProcessSearch,
    )
    from scitoolkit.search.strategies.halving import SuccessiveHalving as SuccessiveHalving
    from scitoolkit.search.strategies.optuna import OptunaSearch as OptunaSearch
    from scitoolkit.search.strategies.random import RandomSearch as RandomSearch
    from scitoolkit.search.table import to_dataframe as to_dataframe
    from scitoolkit.search.trial import Objective as Objective
    from scitoolkit.search.trial import TrialContext as TrialContext

_HOMES: dict[str, str | None] = {
    "AgingEvolution": "strategies.evolution",
    "BayesianSearch": "strategies.bayesian",
    "DeepHyperEvaluator": "evaluators.deephyper",
    "Evaluator": "evaluators",
    "EvaluatorConfig": "evaluators",
    "GaussianProcessSearch": "strategies.gaussian_process.strategy",
    "History": "history",
    "InProcess": "evaluators",
    "Limits": "evaluators",
    "MedianPruning": "pruning",
    "Objective": "trial",
    "OptunaSearch": "strategies.optuna",
    "Processes": "evaluators.processes",
    "Proposal": "strategies",
    "RandomSearch": "strategies.random",
    "Search": "manager",
    "Simulated": "evaluators",
    "Space": "space",
    "Strategy": "strategies",
    "StrategyConfig": "strategies",
    "SuccessiveHalving": "strategies.halving",
    "Threads": "evaluators",
    "TrialContext": "trial",
    "chain": "declarations",
    "choice": "declarations",
    "integer": "declarations",
    "load_history": "history",
    "to_dataframe": "table",
    "real": "declarations",
    "spaces": None,
}
__all__ = [
    "AgingEvolution",
    "BayesianSearch",
    "DeepHyperEvaluator",
    "Evaluator",
    "EvaluatorConfig",
    "GaussianProcessSearch",
    "History",
    "InProcess",
    "Limits",
    "MedianPruning",
    "Objective",
    "OptunaSearch",
    "Processes",
    "Proposal",
    "RandomSearch",
    "Search",
    "Simulated",
    "Space",
    "Strategy",
    "StrategyConfig",
    "SuccessiveHalving",
    "Threads",
    "TrialContext",
    "chain",
    "choice",
    "integer",
    "load_history",
    "real",
    "spaces",
    "to_dataframe",
]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())

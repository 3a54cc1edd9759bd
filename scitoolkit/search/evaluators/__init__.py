"""Evaluators, which run the trials of a search: plug-in kind, base classes, in-process members."""

from scitoolkit.search.evaluators.base import Evaluator, InProcess, Limits, Simulated, Threads
from scitoolkit.search.evaluators.config import EvaluatorConfig, Resources, evaluators

__all__ = [
    "Evaluator",
    "EvaluatorConfig",
    "InProcess",
    "Limits",
    "Resources",
    "Simulated",
    "Threads",
    "evaluators",
]

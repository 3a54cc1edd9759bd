"""Evaluators: where trials run. The plug-in kind `evaluator`, its base classes and our members."""

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

"""Evaluator that runs trials one after another in this process."""

from __future__ import annotations

from typing import ClassVar, Literal

from scitoolkit.search.evaluators.base import InProcess
from scitoolkit.search.evaluators.config import EvaluatorConfig, Resources
from scitoolkit.search.worker import Evaluate


class SerialConfig(EvaluatorConfig):
    """One trial at a time in the process of the search, which is easy to debug."""

    reads: ClassVar[frozenset[str]] = frozenset({"trial_seconds"})

    name: Literal["serial"] = "serial"

    def build(self, evaluate: Evaluate, resources: Resources) -> InProcess:
        """Return the evaluator."""
        return InProcess(evaluate, resources.limits)

"""Plug-in kind `evaluator`: base configuration of the workers of a search."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Kind, NeedsPackages
from scitoolkit.core.processes import one_process
from scitoolkit.search.evaluators.base import Evaluator, Limits
from scitoolkit.search.worker import Evaluate


@dataclass(frozen=True)
class Resources:
    """Resources of a search.

    Attributes:
        workers: number of trials that run at a time.
        limits: of each trial.
        threads: numerical threads per worker.
        gpus: ids of the GPUs that are assigned to the workers in turn.
        logs: folder for the output of workers; None leaves it on the terminal.
    """

    workers: int = 1
    limits: Limits = field(default_factory=Limits)
    threads: int = 1
    gpus: tuple[int, ...] = ()
    logs: Path | None = None


class EvaluatorConfig(NeedsPackages, Config):
    """Base class of evaluator configurations.

    Attributes:
        reads: keys of `budget` that the evaluator uses; other keys must keep their defaults.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"workers", "trial_seconds"})

    name: str

    @abstractmethod
    def build(self, evaluate: Evaluate, resources: Resources) -> Evaluator:
        """Return the started evaluator.

        Args:
            evaluate: importable function or picklable object; see `TrialContext`.
            resources: workers, limits, threads and GPUs.
        """

    def session(self) -> AbstractContextManager[bool]:
        """Return the context of a search; it yields False on processes that only run trials."""
        return one_process()


evaluators: Kind[type[EvaluatorConfig]] = Kind(
    "evaluator",
    "runs the trials of a search",
    contract="scitoolkit.testing:EvaluatorContract",
)

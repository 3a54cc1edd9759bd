"""The plug-in kind `evaluator`: where the trials of a search run, as a configuration."""

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
    """What a search may use at a time.

    Attributes:
        workers: trials that run at a time.
        limits: of each trial.
        threads: numerical threads of a worker.
        gpus: ids of GPUs to deal out to the workers.
        logs: folder for what workers print.
    """

    workers: int = 1
    limits: Limits = field(default_factory=Limits)
    threads: int = 1
    gpus: tuple[int, ...] = ()
    logs: Path | None = None


class EvaluatorConfig(NeedsPackages, Config):
    """Base of an evaluator's configuration.

    Attributes:
        reads: keys of `budget` that it acts on; others are refused unless they have the default.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"workers", "trial_seconds"})

    name: str

    @abstractmethod
    def build(self, evaluate: Evaluate, resources: Resources) -> Evaluator:
        """Return the evaluator, started."""

    def session(self) -> AbstractContextManager[bool]:
        """Return a context around a search: False on processes that only run trials."""
        return one_process()


evaluators: Kind[type[EvaluatorConfig]] = Kind("evaluator", "runs the trials of a search")

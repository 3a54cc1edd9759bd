"""Base class of jobs that use the trainer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from scitoolkit.core.config import Config
from scitoolkit.core.job import Finding, Job


class TrainingJob(Job):
    """A `Job` whose `training` section configures the process group."""

    def validate(self, config: Any) -> Sequence[Finding]:
        """Warn if both `training.epochs` and `training.steps` are set: `steps` takes precedence."""
        training = config.training
        default: Any = type(config).model_fields["training"].default
        if not isinstance(default, Config):
            default = type(training)()
        if training.reads_epochs or training.epochs == default.epochs:
            return []
        return [
            Finding(
                "not read, as training.steps is set: leave one out", "training.epochs", "warning"
            )
        ]

    @contextlib.contextmanager
    def processes(self, config: Any) -> Iterator[bool]:
        """Join the process group of `config.training`; every rank takes part."""
        from scitoolkit.training.processes import process_group

        with process_group(config.training):
            yield True

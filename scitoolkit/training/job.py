"""Base of the domains that train with the common trainer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from scitoolkit.core.job import Job


class TrainingJob(Job):
    """A `Job` whose configuration has a `training` section that says how processes share work."""

    @contextlib.contextmanager
    def processes(self, config: Any) -> Iterator[bool]:
        """Join the process group of `config.training`; every rank takes part."""
        from scitoolkit.training.processes import process_group

        with process_group(config.training):
            yield True

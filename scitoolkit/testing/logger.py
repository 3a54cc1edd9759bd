"""Contract suite of loggers, to inherit in tests.

Example:
    class TestMyLogger(LoggerContract):
        @pytest.fixture
        def logger(self):
            return MyLogger()
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from scitoolkit.core.config import Config
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.training.loggers import LoggerConfig


class LoggerContract:
    """Contract suite of loggers; override the fixture `logger`."""

    @pytest.fixture
    def logger(self) -> LoggerConfig:
        """Return the logger's configuration."""
        raise NotImplementedError("override the fixture `logger`")

    def test_it_writes_below_the_run_and_continues(
        self, logger: LoggerConfig, tmp_path: Path
    ) -> None:
        """Two sessions append to one run without changing other files; NaN is accepted."""
        run = RunDirectory.create(tmp_path, "logger", Config())
        before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
        states = []
        for first in (1, 3):
            opened = logger.open(run)
            for step in (first, first + 1):
                opened.write({"train/loss": 1.0 / step, "validation/loss": math.nan}, step)
            opened.close()
            files = [path for path in run.path.rglob("*") if path.is_file()]
            states.append({path: path.read_bytes() for path in files})
        assert set(before) < set(states[0]) <= set(states[1])
        # The size is not compared: a database need not grow with a few values.
        assert states[1] != states[0]
        assert all(path.read_bytes() == data for path, data in before.items())

"""Loggers: destinations of a run's scalars in addition to metrics.jsonl.

A logger is a `LoggerConfig` whose `open` returns an object with `write` and `close`; the trainer
opens and calls it on rank 0 only. Optional packages are imported in `open`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

from scitoolkit.core.config import Config
from scitoolkit.core.errors import missing_extra
from scitoolkit.core.files import append_lines, disk_error
from scitoolkit.core.plugins import Choice, Kind, NeedsPackages
from scitoolkit.core.run_directory import RUN_ROOT, RunDirectory


class Logger(Protocol):
    """An open destination of scalars."""

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Write the scalars of an optimizer step, named like `train/loss` or `validation/loss`."""

    def close(self) -> None:
        """Flush and close."""


class LoggerConfig(NeedsPackages, Config):
    """Base class of loggers.

    Attributes:
        requires: importable packages that it needs; the extra that installs them is called `name`.
    """

    name: str

    def check(self) -> None:
        """Check that the logger's packages are installed, on all ranks before the first step.

        Raises:
            BackendError: a package is missing; the message names the extra to install.
        """
        if self.unavailable():
            raise missing_extra(" and ".join(self.requires), self.name, f"logger {self.name}")

    def open(self, run: RunDirectory) -> Logger:
        """Return the logger of a run; a resumed run appends to existing records."""
        raise NotImplementedError


loggers: Kind[type[LoggerConfig]] = Kind(
    "logger",
    "writes the scalars of a training run",
    contract="scitoolkit.testing:LoggerContract",
)
AnyLogger = Annotated[LoggerConfig, Choice(loggers)]


class MetricsFile:
    """Appends to the run's metrics.jsonl, which every run has because reports read it."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Append a line per value."""
        try:
            self._run.log_metrics(values, step=step)
        except OSError as error:
            raise disk_error(error, self._run.metrics_path, RUN_ROOT) from None

    def close(self) -> None:
        """Nothing is open between writes."""


class MetricsTable(LoggerConfig):
    """CSV table `metrics.csv` in the run directory with columns step, name, value."""

    name: Literal["csv"] = "csv"

    def open(self, run: RunDirectory) -> Logger:
        """Return a writer that appends to the table."""
        return _CsvRows(run.path / "metrics.csv")


class _CsvRows:
    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            self._append([("step", "name", "value")])

    def write(self, values: Mapping[str, float], step: int) -> None:
        self._append([(step, name, float(value)) for name, value in values.items()])

    def close(self) -> None:
        """Nothing is open between writes."""

    def _append(self, rows: Sequence[tuple[object, ...]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        try:
            append_lines(self._path, text.getvalue())
        except OSError as error:
            raise disk_error(error, self._path, RUN_ROOT) from None


class TensorBoard(LoggerConfig):
    """TensorBoard event files in `tensorboard/` of the run directory."""

    requires: ClassVar[tuple[str, ...]] = ("tensorboard",)
    name: Literal["tensorboard"] = "tensorboard"

    def open(self, run: RunDirectory) -> Logger:
        """Return a writer of event files."""
        self.check()
        from torch.utils.tensorboard import SummaryWriter

        return _Events(SummaryWriter(str(run.path / "tensorboard")))


class _Events:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()

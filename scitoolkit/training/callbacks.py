"""Callbacks of the trainer: base class, loggers, progress line, profiler, traffic counter.

A callback receives a read-only `TrainingView` and must not change results. Hooks are called on
every rank; `values` are global means, equal on all ranks.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from scitoolkit.core.files import write_atomic
from scitoolkit.core.log import get_logger
from scitoolkit.core.notebook import in_notebook
from scitoolkit.training.loggers import Logger
from scitoolkit.training.view import TrainingView

if TYPE_CHECKING:
    from scitoolkit.training.traffic import TrafficCounter

log: logging.Logger = get_logger(__name__)


class Callback:
    """Base class of callbacks; all hooks do nothing by default.

    Attributes:
        wants_every_step: whether `on_step` is called.
        should_stop: set it to True in a hook, on any rank, to end the training at the next step
            boundary: all ranks validate, save and return from `fit` as after the last step.
    """

    wants_every_step = False
    should_stop: bool = False

    def on_fit_start(self, trainer: TrainingView) -> None:
        """Handle the start of the training, after a resume and before the first step."""

    def on_step(self, trainer: TrainingView) -> None:
        """Handle the end of a step; called only if `wants_every_step` is set."""

    def on_log(self, trainer: TrainingView, values: Mapping[str, float]) -> None:
        """Handle loss, learning rate and gradient norm, every `log_every` steps."""

    def on_validation(self, trainer: TrainingView, values: Mapping[str, float]) -> None:
        """Handle the metrics of a validation."""

    def on_fit_end(self, trainer: TrainingView) -> None:
        """Handle the end of the training, also after an error or a signal."""


class ScalarLog(Callback):
    """Writes training and validation values to loggers as `train/NAME` and `validation/NAME`."""

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self._loggers = list(loggers)

    def on_log(self, trainer: TrainingView, values: Mapping[str, float]) -> None:
        """Write the training values."""
        self._write("train", values, trainer.step)

    def on_validation(self, trainer: TrainingView, values: Mapping[str, float]) -> None:
        """Write the validation values."""
        self._write("validation", values, trainer.step)

    def on_fit_end(self, trainer: TrainingView) -> None:
        """Close the loggers."""
        for logger in self._loggers:
            logger.close()

    def _write(self, part: str, values: Mapping[str, float], step: int) -> None:
        named = {f"{part}/{name}": value for name, value in values.items()}
        for logger in self._loggers:
            logger.write(named, step)


class ProgressLine(Callback):
    """Progress display: one updated line on a terminal or in a notebook, else one every 10 s.

    Args:
        stream: output stream; stderr by default.
        interval: seconds between lines; by default 0.2 for an updated line, else 10.
    """

    def __init__(self, stream: TextIO | None = None, interval: float | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty() or in_notebook()
        self._width = 0
        self._interval = (0.2 if self._live else 10.0) if interval is None else interval
        self._validation = ""

    def on_fit_start(self, trainer: TrainingView) -> None:
        """Start the clock."""
        self._start, self._first = time.monotonic(), trainer.step
        self._shown = self._start

    def on_log(self, trainer: TrainingView, values: Mapping[str, float]) -> None:
        """Show loss, steps per second and remaining time."""
        now = time.monotonic()
        if now - self._shown < self._interval:
            return
        self._shown = now
        rate = (trainer.step - self._first) / max(now - self._start, 1e-9)
        left = (trainer.total_steps - trainer.step) / max(rate, 1e-9)
        text = (
            f"step {trainer.step}/{trainer.total_steps}  epoch {trainer.epoch + 1}"
            f"  loss {values['loss']:.4g}{self._validation}"
            f"  {rate:.1f} steps/s  {_duration(left)} left"
        )
        # Spaces and no control sequence erase the last line, which notebooks understand as well.
        self._width = max(self._width, len(text))
        self._stream.write(f"\r{text:<{self._width}}" if self._live else f"{text}\n")
        self._stream.flush()

    def on_validation(self, trainer: TrainingView, values: Mapping[str, float]) -> None:
        """Store the validation loss for the next line."""
        self._validation = f"  validation {values['loss']:.4g}"

    def on_fit_end(self, trainer: TrainingView) -> None:
        """End the line on a terminal."""
        if self._live:
            self._stream.write("\n")


class Profiler(Callback):
    """Profiles `steps` steps after `warmup` steps with torch.profiler; writes a Chrome trace."""

    wants_every_step = True

    def __init__(self, path: Path, *, warmup: int = 5, steps: int = 10) -> None:
        self._path, self._warmup, self._steps = path, warmup, steps
        self._profile: Any = None
        self._seen = 0

    def on_step(self, trainer: TrainingView) -> None:
        """Start the profiler after the warm-up and stop it after the recorded steps."""
        import torch

        self._seen += 1
        if self._seen == self._warmup:
            self._profile = torch.profiler.profile(acc_events=True)
            self._profile.start()
        elif self._seen == self._warmup + self._steps:
            self._finish()

    def on_fit_end(self, trainer: TrainingView) -> None:
        """Write the trace if the training ended before `steps` steps were recorded."""
        self._finish()

    def _finish(self) -> None:
        if self._profile is None:
            return
        self._profile.stop()
        self._profile.export_chrome_trace(str(self._path))
        log.info("profile written to %s", self._path)
        self._profile = None


class TrafficLog(Callback):
    """Counts bytes and messages of the collectives; writes `traffic.json` in the run directory."""

    def __init__(self) -> None:
        self._counting = contextlib.ExitStack()
        self._counter: TrafficCounter | None = None

    def on_fit_start(self, trainer: TrainingView) -> None:
        """Start counting."""
        from scitoolkit.training.traffic import TrafficCounter

        self._counter, self._first = TrafficCounter(), trainer.step
        self._counting.enter_context(self._counter.counting())

    def on_fit_end(self, trainer: TrainingView) -> None:
        """Stop counting and write the traffic received by rank 0."""
        self._counting.close()
        if self._counter is None or trainer.strategy.rank or trainer.run is None:
            return
        steps, total = trainer.step - self._first, self._counter.total()
        counts = {"steps": steps, "collectives": self._counter.as_dict(), "total": asdict(total)}
        write_atomic(trainer.run.path / "traffic.json", json.dumps(counts, indent=1))
        log.info(
            "%.0f bytes and %.1f messages per step from other ranks",
            total.bytes / max(1, steps),
            total.messages / max(1, steps),
        )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

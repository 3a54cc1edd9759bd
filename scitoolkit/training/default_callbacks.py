"""Callbacks selected by the configuration."""

from __future__ import annotations

from scitoolkit.training.callbacks import Callback, Profiler, ProgressLine, ScalarLog, TrafficLog
from scitoolkit.training.loggers import MetricsFile
from scitoolkit.training.noise_scale import NoiseScaleLog
from scitoolkit.training.view import TrainingView


def default_callbacks(trainer: TrainingView) -> list[Callback]:
    """Return this rank's callbacks as selected by the configuration.

    Raises:
        BackendError: a logger's package is not installed; on every rank.
    """
    config, run = trainer.config, trainer.run
    out: list[Callback] = []
    if run is not None and config.profile:
        out.append(Profiler(run.path / f"profile-rank{trainer.strategy.rank}.json"))
    if config.noise_scale:
        out.append(NoiseScaleLog())
    if config.count_traffic and trainer.strategy.world > 1:
        out.append(TrafficLog())
    for logger in config.loggers:
        logger.check()
    if trainer.strategy.rank:
        return out
    if run is not None:
        out.append(ScalarLog([MetricsFile(run), *(logger.open(run) for logger in config.loggers)]))
    if config.progress:
        out.append(ProgressLine())
    return out

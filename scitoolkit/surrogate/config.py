"""Sections of configurations that domains share."""

from __future__ import annotations

from pydantic import Field

from scitoolkit.core.config import Config


class TrainedStart(Config):
    """A training that starts from trained weights instead of random ones.

    Attributes:
        path: run directory or name of a shipped surrogate.
        frozen: names of parameters that are not trained, with wildcards.
    """

    path: str = Field(min_length=1)
    frozen: list[str] = Field(default_factory=list)


class IntervalsConfig(Config):
    """Prediction intervals, calibrated on the validation part.

    Attributes:
        coverage: probability that a true value of a further sample is inside.
    """

    coverage: float = Field(default=0.9, gt=0, lt=1)

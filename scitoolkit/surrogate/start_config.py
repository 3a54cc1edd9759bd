"""Configuration of fine-tuning, as far as domains share it."""

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

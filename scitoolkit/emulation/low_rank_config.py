"""Configuration of low-rank emulators."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from scitoolkit.core.config import Config


class LowRankConfig(Config):
    """Layers of low rank, initialised from a trained emulator.

    Attributes:
        of: run directory or name of a shipped surrogate with the same data, model and coordinates.
        ranks: {layer: ranks}: one rank for a linear layer or a convolution of kernel size 1, ranks
            of inputs and outputs for other convolutions; as chosen by `scitoolkit export
            --time-share`.
    """

    of: str = Field(min_length=1)
    ranks: dict[str, list[PositiveInt]] = Field(min_length=1)

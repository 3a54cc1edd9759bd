"""Configuration of emulators in low rank."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from scitoolkit.core.config import Config


class LowRankConfig(Config):
    """Layers with factors of low rank, begun from a trained emulator.

    Attributes:
        of: run directory or name of a shipped surrogate: the trained emulator, of the same data,
            model and coordinates.
        ranks: {layer: ranks}, one rank of a linear layer or a convolution of single cells, ranks
            of inputs and outputs of another; as `scitoolkit export --time-share` chooses them.
    """

    of: str = Field(min_length=1)
    ranks: dict[str, list[PositiveInt]] = Field(min_length=1)

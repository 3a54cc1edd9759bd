"""Options of the export of a potential."""

from __future__ import annotations

from typing import Literal

from scitoolkit.core.config import Config


class LibraryOptions(Config):
    """Options of `scitoolkit export` for a potential.

    Attributes:
        precision: float32 or float64 instead of the precision of the training.
        compress: evaluate embedding networks from tables.
    """

    precision: Literal["float32", "float64"] | None = None
    compress: bool = False

"""Options of the export of a potential."""

from __future__ import annotations

from typing import Literal

from scitoolkit.core.config import Config


class LibraryOptions(Config):
    """How a potential is exported.

    Attributes:
        precision: float32 or float64 instead of the one it was trained in.
        compress: evaluate embedding networks from tables; refused for models without any.
    """

    precision: Literal["float32", "float64"] | None = None
    compress: bool = False

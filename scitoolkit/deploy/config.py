"""How a surrogate is written as C."""

from __future__ import annotations

from typing import Literal

from scitoolkit.core.config import Config


class ExportConfig(Config):
    """Options of `scitoolkit export RUN -o model.c` and `-o model.so`.

    Attributes:
        tolerance: largest difference from the surrogate, relative to an output's largest value;
            nothing is written beyond it.
        vectors: bits of the vector registers that the code is written for; those of this
            machine unless given.
    """

    tolerance: float = 1e-4
    vectors: Literal[128, 256, 512] | None = None

"""Configuration of the ZBL repulsion."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveFloat, model_validator

from scitoolkit.core.config import Config


class ZblConfig(Config):
    """Universal repulsion of Ziegler, Biersack and Littmark, switched off before bond lengths.

    Attributes:
        inner: distance below which it acts in full, Å; by default half of `outer`.
        outer: distance beyond which it is zero, Å; by default the sum of the covalent radii.
    """

    requires: ClassVar[tuple[str, ...]] = ("ase",)

    inner: PositiveFloat | None = None
    outer: PositiveFloat | None = None

    @model_validator(mode="after")
    def _falls(self) -> ZblConfig:
        if self.inner is not None and self.outer is not None and self.inner >= self.outer:
            raise ValueError(f"inner {self.inner} must be below outer {self.outer}")
        return self

"""Configuration of the screened repulsion of nuclei."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveFloat, model_validator

from scitoolkit.core.config import Config


class ZblConfig(Config):
    """The universal repulsion of Ziegler, Biersack and Littmark, switched off towards bonds.

    Attributes:
        inner: Å, up to where it acts in full; half of `outer` unless given.
        outer: Å, from where it is zero; the sum of the pair's covalent radii unless given.
    """

    requires: ClassVar[tuple[str, ...]] = ("ase",)

    inner: PositiveFloat | None = None
    outer: PositiveFloat | None = None

    @model_validator(mode="after")
    def _falls(self) -> ZblConfig:
        if self.inner is not None and self.outer is not None and self.inner >= self.outer:
            raise ValueError(f"inner {self.inner} must be below outer {self.outer}")
        return self

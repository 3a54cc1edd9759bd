"""Configuration of the screened repulsion of nuclei."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import PositiveFloat, model_validator

from scitoolkit.core.config import Config
from scitoolkit.core.lazy import load_name

if TYPE_CHECKING:
    from torch import nn


class ZblConfig(Config):
    """The universal repulsion of Ziegler, Biersack and Littmark, switched off towards bonds.

    Attributes:
        inner: Å, up to where it acts in full; half of `outer` unless given.
        outer: Å, from where it is zero; the sum of the pair's covalent radii unless given.

    Example:
        >>> term = ZblConfig(inner=0.8, outer=1.4).build(["O", "Si"], cutoff=5.0)
        >>> [round(float(each), 3) for each in term.pairs[2:, 0, 1]]
        [0.8, 1.4]
    """

    inner: PositiveFloat | None = None
    outer: PositiveFloat | None = None

    @model_validator(mode="after")
    def _falls(self) -> ZblConfig:
        if self.inner is not None and self.outer is not None and self.inner >= self.outer:
            raise ValueError(f"inner {self.inner} must be below outer {self.outer}")
        return self

    def build(self, type_map: Sequence[str], cutoff: float) -> nn.Module:
        """Return the pair term for the species of a model."""
        return load_name("scitoolkit.potentials.zbl:Zbl")(self, type_map, cutoff)

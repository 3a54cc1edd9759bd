"""Configuration of the electrostatic energy beyond the cutoff."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, FiniteFloat, PositiveInt, model_validator

from scitoolkit.core.config import Config


class LongRangeConfig(Config):
    """Coulomb energy of charges on the atoms, smeared as Gaussians, without a cutoff.

    In frames that are periodic in three directions it is an Ewald sum, in open frames the sum over
    all pairs; other boundary conditions are refused.

    Attributes:
        charges: `fixed` charges of the elements, or `latent` ones, which a network computes from
            each atom's neighbours and which are learned from energies and forces alone.
        values: charge of each element in elementary charges, for `fixed`.
        width: standard deviation of the Gaussian that screens a pair at short distance, Å; the
            energy of a pair is q q' erf(r / (sqrt(2) width)) / r.
        accuracy: relative size of the terms of the Ewald sum that are left out.
        neurons: width of the network of latent charges.
    """

    charges: Literal["fixed", "latent"] = "latent"
    values: dict[str, FiniteFloat] = Field(default_factory=dict)
    width: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    accuracy: float = Field(default=1e-6, gt=0, lt=0.1)
    neurons: PositiveInt = 32

    @model_validator(mode="after")
    def _has_values(self) -> LongRangeConfig:
        if self.charges == "fixed" and not self.values:
            raise ValueError("fixed charges have values: {Na: 1, Cl: -1}, or charges: latent")
        if self.charges == "latent" and self.values:
            raise ValueError("latent charges are learned: leave out values, or charges: fixed")
        return self

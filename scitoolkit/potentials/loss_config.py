"""Configuration of the loss of potentials."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, model_validator

from scitoolkit.core.config import Config


class LossConfig(Config):
    """Weights of energy, forces and virial in the loss, as in deepmd-kit.

    At learning rate a the weight is limit + (start - limit) a/a0, where a0 is the initial one. New
    trainings of `mace` and `nequip` have energy weights from 10 to 100 and force weights of 100
    where they state no others.

    Attributes:
        start_pref_e: weight of (energy error)²/atoms at the initial learning rate.
        limit_pref_e: the same at learning rate zero.
        start_pref_f: initial weight of the mean square error of the force components.
        limit_pref_f: the same at learning rate zero.
        start_pref_v: initial weight of (error of a virial component)²/atoms, averaged.
        limit_pref_v: the same at learning rate zero.
        huber: error in eV (forces: eV/Å) beyond which the loss is linear; None for squares.
    """

    start_pref_e: float = Field(default=0.02, ge=0, allow_inf_nan=False)
    limit_pref_e: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    start_pref_f: float = Field(default=1000.0, ge=0, allow_inf_nan=False)
    limit_pref_f: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    start_pref_v: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    limit_pref_v: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    huber: PositiveFloat | None = None

    @model_validator(mode="after")
    def _anything(self) -> LossConfig:
        """Require a part to train on."""
        if not any(self.uses(part) for part in ("energy", "forces", "virial")):
            raise ValueError("all weights are 0: nothing to train on")
        return self

    def weights(self, factor: float) -> dict[str, float]:
        """Return the weight of each part when the learning rate is `factor` times the initial one.

        Example:
            >>> LossConfig().weights(0.5)["forces"]
            500.5
        """
        pairs = {
            "energy": (self.start_pref_e, self.limit_pref_e),
            "forces": (self.start_pref_f, self.limit_pref_f),
            "virial": (self.start_pref_v, self.limit_pref_v),
        }
        return {name: limit + (start - limit) * factor for name, (start, limit) in pairs.items()}

    def uses(self, part: str) -> bool:
        """Return whether a part has a nonzero weight at any time."""
        return self.weights(0.0)[part] > 0 or self.weights(1.0)[part] > 0

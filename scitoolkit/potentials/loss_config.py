"""Weights of energies, forces and virials in the loss."""

from __future__ import annotations

from pydantic import Field, PositiveFloat

from scitoolkit.core.config import Config


class LossConfig(Config):
    """Weights of the parts, as deepmd-kit's: from `start` to `limit` as the learning rate falls.

    At learning rate a the weight is limit + (start - limit) a/a0, with a0 the first one.

    Attributes:
        start_pref_e: weight of (energy error)²/atoms at the first learning rate; and so on.
        huber: None for squares, else the error in eV (eV/Å) beyond which it counts linearly.
    """

    start_pref_e: float = Field(default=0.02, ge=0)
    limit_pref_e: float = Field(default=1.0, ge=0)
    start_pref_f: float = Field(default=1000.0, ge=0)
    limit_pref_f: float = Field(default=1.0, ge=0)
    start_pref_v: float = Field(default=0.0, ge=0)
    limit_pref_v: float = Field(default=0.0, ge=0)
    huber: PositiveFloat | None = None

    def weights(self, factor: float) -> dict[str, float]:
        """Return the weight of each part when the learning rate is `factor` of the first.

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
        """Return whether a part has a weight at any time."""
        return self.weights(0.0)[part] > 0 or self.weights(1.0)[part] > 0

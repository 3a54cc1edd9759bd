"""Spec of a radial basis: functions of distance times a polynomial cutoff function."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import asdict, dataclass

from scitoolkit.core.errors import ConfigError

KINDS = ("bessel", "gaussian", "chebyshev")


@dataclass(frozen=True)
class RadialSpec:
    """Basis functions of a distance r times a cutoff function that vanishes at r = cutoff.

    Attributes:
        kind: bessel: sqrt(2/c) sin(n pi r/c)/r, n = 1..N (Klicpera et al. 2020, eq. 7);
            gaussian: exp(-(r - mu_n)^2 / (2 s^2)), mu_n from 0 to c in steps of s;
            chebyshev: T_n(2 r/c - 1), n = 0..N-1.
        num_basis: N.
        cutoff: c, in the unit of the distances.
        envelope: power p of the cutoff 1 - (p+1)(p+2)/2 u^p + p(p+2) u^(p+1) - p(p+1)/2 u^(p+2)
            with u = r/c (Klicpera et al. 2020, eq. 8): C2 at c, exactly zero from there on.

    Example:
        >>> RadialSpec("bessel", 8, 5.0, 6).num_basis
        8
    """

    kind: str
    num_basis: int
    cutoff: float
    envelope: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"kind={self.kind!r}", allowed=", ".join(KINDS))
        if self.num_basis < 1 or (self.kind == "gaussian" and self.num_basis < 2):
            raise ConfigError(f"num_basis={self.num_basis}", allowed="at least 1 (gaussian: 2)")
        if not (math.isfinite(self.cutoff) and self.cutoff > 0):
            raise ConfigError(f"cutoff={self.cutoff}", allowed="a positive number")
        if self.envelope < 2:
            raise ConfigError(f"envelope={self.envelope}", allowed="an integer of at least 2")

    @property
    def gaussian_exponent(self) -> float:
        """Factor of (r - mu)^2 in the exponent of the Gaussians."""
        return -0.5 * ((self.num_basis - 1) / self.cutoff) ** 2

    def to_json(self) -> str:
        """Return the spec as text, an argument of operators that torch.compile can trace."""
        return json.dumps(asdict(self))

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def from_json(text: str) -> RadialSpec:
        """Return the spec of a text from `to_json`."""
        return RadialSpec(**json.loads(text))


def envelope_coefficients(p: int) -> list[float]:
    """Return a_k of the cutoff function (1 - u)^3 sum_k a_k u^k, stable near u = 1.

    Example:
        >>> envelope_coefficients(3)
        [1.0, 3.0, 6.0]
    """
    return [(k + 1) * (k + 2) / 2 for k in range(p)]

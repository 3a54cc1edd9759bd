"""Spec of real spherical harmonics: degrees, normalisation, recursion and derivative constants.

Components of degree l are m = -l..l with y as the polar axis (order and signs of e3nn), so degree 1
is (x, y, z). They are homogeneous polynomials, and the derivatives of those of degree l are linear
combinations of few of degree l - 1, which makes derivatives as cheap as values.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.irreps import Irreps

MAX_DEGREE = 7
_SEQUENCES = (list, tuple, range)  # exact types, because an irrep is a tuple of two integers
NORMALIZATIONS: dict[str, Callable[[int], float]] = {
    "norm": lambda degree: 1.0,
    "component": lambda degree: math.sqrt(2 * degree + 1),
    "integral": lambda degree: math.sqrt((2 * degree + 1) / (4 * math.pi)),
}


@dataclass(frozen=True)
class HarmonicsSpec:
    """Real spherical harmonics of some degrees of 3-vectors.

    Attributes:
        degrees: degrees l in the order of the output; repeats are allowed.
        normalization: component (norm sqrt(2l+1) on the unit sphere), norm (1), or integral.
        normalize: divide vectors by their length first.

    Example:
        >>> HarmonicsSpec((0, 1, 2), "component", True).dim_out
        9
    """

    degrees: tuple[int, ...]
    normalization: str
    normalize: bool

    def __post_init__(self) -> None:
        if self.normalization not in NORMALIZATIONS:
            raise ConfigError(
                f"normalization={self.normalization!r}", allowed=", ".join(NORMALIZATIONS)
            )
        if not self.degrees:
            raise ConfigError("degrees is empty", allowed=f"integers from 0 to {MAX_DEGREE}")
        for degree in self.degrees:
            if not isinstance(degree, int) or not 0 <= degree <= MAX_DEGREE:
                raise ConfigError(
                    f"degree {degree!r} in degrees", allowed=f"integers from 0 to {MAX_DEGREE}"
                )

    @property
    def max_degree(self) -> int:
        """Highest degree."""
        return max(self.degrees)

    @property
    def dim_out(self) -> int:
        """Number of output components."""
        return sum(2 * degree + 1 for degree in self.degrees)

    def scale(self, degree: int) -> float:
        """Return the factor that converts unit-norm harmonics of a degree to the normalisation."""
        return NORMALIZATIONS[self.normalization](degree)

    def to_json(self) -> str:
        """Return the spec as text, an argument of operators that torch.compile can trace."""
        return json.dumps(asdict(self))

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def from_json(text: str) -> HarmonicsSpec:
        """Return the spec of a text from `to_json`."""
        raw = json.loads(text)
        return HarmonicsSpec(tuple(raw["degrees"]), raw["normalization"], raw["normalize"])


def degrees_of(irreps: Any) -> tuple[int, ...]:
    """Return the degrees given by an integer, a sequence of integers, or irreps.

    An integer is a single degree, as in e3nn. Multiplicities of irreps are repeats. Parities must
    be those of harmonics of a vector (1o) or, for all degrees, of a pseudovector (1e).

    Raises:
        ConfigError: another type, or inconsistent parities.

    Example:
        >>> degrees_of("0e + 1o + 2e"), degrees_of(3), degrees_of([0, 2])
        ((0, 1, 2), (3,), (0, 2))
    """
    if isinstance(irreps, int):
        return (irreps,)
    if type(irreps) in _SEQUENCES and all(isinstance(degree, int) for degree in irreps):
        return tuple(irreps)
    degrees, parities = [], set()
    for mul, irrep in Irreps(irreps):
        degrees += [irrep.degree] * mul
        if irrep.degree % 2:
            parities.add(irrep.parity)
        elif irrep.parity != 1:
            raise ConfigError(f"irrep {irrep}", allowed="even parity for an even degree")
    if len(parities) > 1:
        raise ConfigError(f"irreps {irreps}", allowed="one parity for all odd degrees")
    return tuple(degrees)


def index(degree: int, m: int) -> int:
    """Return the index of component m of a degree in the row of all degrees from 0."""
    return degree * degree + degree + m


def sectoral(m: int) -> float:
    """Return the constant of the sectoral harmonic of degree l = m, unit norm."""
    if m == 0:
        return 1.0
    return math.sqrt(2 * math.prod((2 * k - 1) / (2 * k) for k in range(1, m + 1)))


@functools.cache
def derivative(axis: int, degree: int, m: int) -> tuple[tuple[int, float], ...]:
    """Return d Y(degree, m) / d axis as ((m', factor), ...) over Y(degree - 1, m'), unit norm.

    Args:
        axis: 0, 1, 2 for x, y, z; y is the polar axis.
        degree: l >= 1.
        m: component, -l..l.

    Source: gradient formula of solid harmonics, Varshalovich et al., section 5.8, for real
    harmonics without the Condon-Shortley phase.

    Example:
        >>> derivative(1, 1, 0)  # Y(1, 0) is y
        ((0, 1.0),)
    """
    size = abs(m)
    if axis == 1:
        terms = [(m, math.sqrt((degree - size) * (degree + size)))]
    else:
        down = math.sqrt((degree + size) * (degree + size - 1)) / 2
        up = math.sqrt((degree - size) * (degree - size - 1)) / 2
        terms = _transverse(axis, m, down, up)
    return tuple((k, factor) for k, factor in terms if factor and abs(k) < degree)


def _transverse(axis: int, m: int, down: float, up: float) -> list[tuple[int, float]]:
    """Return derivatives along z (cosine direction) or x (sine direction)."""
    size, sine, cosine_axis = abs(m), m < 0, axis == 2
    if m == 0:
        return [(1 if cosine_axis else -1, -up * math.sqrt(2))]
    to_sine = sine == cosine_axis  # whether the neighbours are sine-like, m' < 0
    sign_down = -1.0 if (not sine and not cosine_axis) else 1.0
    sign_up = 1.0 if (sine and not cosine_axis) else -1.0
    terms = [(-(size + 1) if to_sine else size + 1, sign_up * up)]
    if size == 1:
        lower = [] if to_sine else [(0, down * math.sqrt(2))]
    else:
        lower = [(-(size - 1) if to_sine else size - 1, sign_down * down)]
    return lower + terms

"""Irreps of O(3) in text form: "32x0e + 32x1o" is 32 scalars and 32 vectors.

Text and order are those of e3nn, so that irreps can be exchanged between the packages; e3nn itself
is not needed. All inputs are converted to text and validated by one parser.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from scitoolkit.core.errors import ConfigError

_TERM = re.compile(r"(?:(\d+)\s*x\s*)?(\d+)\s*([eoy])", re.ASCII)
_PARITY = {"e": 1, "o": -1}
_PLAIN = (list, tuple)  # exact types: e3nn's tuple subclasses are parsed by their text


class Irrep(NamedTuple):
    """One irrep of O(3): its degree l and its parity, +1 (even) or -1 (odd).

    Irreps are ordered by degree, odd before even, as e3nn sorts them.

    Example:
        >>> Irrep(1, -1), Irrep(1, -1).dim, Irrep(0, -1) < Irrep(0, 1)
        (1o, 3, True)
    """

    degree: int
    parity: int

    @property
    def dim(self) -> int:
        """The 2 l + 1 components."""
        return 2 * self.degree + 1

    def product(self, other: Irrep) -> tuple[Irrep, ...]:
        """Return the irreps of the product of this one with another, by rising degree.

        Example:
            >>> Irrep(1, -1).product(Irrep(2, 1))
            (1o, 2o, 3o)
        """
        degrees = range(abs(self.degree - other.degree), self.degree + other.degree + 1)
        return tuple(Irrep(degree, self.parity * other.parity) for degree in degrees)

    def __repr__(self) -> str:
        return f"{self.degree}{'e' if self.parity == 1 else 'o'}"


class MulIrrep(NamedTuple):
    """`mul` copies of one irrep.

    Example:
        >>> MulIrrep(32, Irrep(1, -1)), MulIrrep(32, Irrep(1, -1)).dim
        (32x1o, 96)
    """

    mul: int
    irrep: Irrep

    @property
    def dim(self) -> int:
        """Components of all copies."""
        return self.mul * self.irrep.dim

    def __repr__(self) -> str:
        return f"{self.mul}x{self.irrep}"


class Sorted(NamedTuple):
    """Sorted irreps with the permutation of the segments.

    Attributes:
        irreps: the sorted irreps.
        p: new index of each old segment.
        inv: old index of each new segment.
    """

    irreps: Irreps
    p: tuple[int, ...]
    inv: tuple[int, ...]


class Irreps(tuple[MulIrrep, ...]):
    """A sequence of segments, in any order and with repeats; each is (mul, (degree, parity)).

    Args:
        irreps: text, with y for the parity of spherical harmonics; irreps of this module or of
            e3nn; or a list of terms: text, irreps, or pairs (mul, irrep) with irrep as text or
            (degree, parity).

    Raises:
        ConfigError: a term that is not an irrep.

    Example:
        >>> irreps = Irreps("32x0e + 1o+32x1y")
        >>> irreps, irreps.dim, [mul for mul, _ in irreps]
        (32x0e+1x1o+32x1o, 131, [32, 1, 32])
        >>> Irreps([(2, (1, -1)), (3, "0e"), "2e"])
        2x1o+3x0e+1x2e
    """

    __slots__ = ()

    def __new__(cls, irreps: Any = ()) -> Irreps:
        """Parse the terms of `irreps`."""
        if type(irreps) in _PLAIN:
            terms = [_text(term) for term in irreps]
        else:
            text = str(irreps)
            terms = text.split("+") if text.strip() else []
        return super().__new__(cls, [_read(term, irreps) for term in terms])

    @property
    def dim(self) -> int:
        """Number of components of a feature row."""
        return sum(term.dim for term in self)

    def sort(self) -> Sorted:
        """Return the irreps sorted by irrep; segments of one irrep keep their order.

        Example:
            >>> Irreps("2o + 1e + 0e + 1e").sort()
            Sorted(irreps=1x0e+1x1e+1x1e+1x2o, p=(3, 1, 0, 2), inv=(2, 1, 3, 0))
        """
        inv = sorted(range(len(self)), key=lambda i: self[i].irrep)
        p = sorted(range(len(self)), key=inv.__getitem__)
        return Sorted(Irreps([self[i] for i in inv]), tuple(p), tuple(inv))

    def __repr__(self) -> str:
        return "+".join(map(str, self))


def _text(term: Any) -> str:
    """Return the text of one term of a list, which may be a pair (mul, irrep)."""
    if type(term) not in _PLAIN or len(term) != 2:
        return str(term)
    mul, irrep = term
    if type(irrep) in _PLAIN and tuple(irrep[1:]) in ((1,), (-1,)):
        irrep = Irrep(*irrep)
    return f"{mul}x{irrep}"


def _read(term: str, irreps: Any) -> MulIrrep:
    match = _TERM.fullmatch(term.strip())
    if match is None:
        raise ConfigError(
            f"irrep {term.strip()!r}",
            where=f"irreps {str(irreps)!r}",
            allowed="[multiplicity x] degree, then parity e (even) or o (odd)",
            fix="write them as in '32x0e + 32x1o'",
        )
    degree = int(match[2])
    parity = _PARITY.get(match[3], (-1) ** degree)
    return MulIrrep(int(match[1] or 1), Irrep(degree, parity))

"""Spec of the symmetric contraction: irreps, correlation order and the rows of its polynomial."""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.irreps import Irreps
from scitoolkit.ops.symmetric_contraction.coupling import Irrep, basis, dim, monomials

MAX_CORRELATION = 4
MAX_DEGREE = 4
ZERO = 1e-9  # below this a coefficient is rounding noise of an exact zero


@dataclass(frozen=True)
class ContractionSpec:
    """Sum over orders 1..correlation of weighted symmetric powers of each channel's features.

    Create one with `ContractionSpec.build`. Every channel has one copy of `irreps_in`. Every output
    irrep has separate weights, one per element, path and channel.

    Attributes:
        irreps_in, irreps_out: (degree, parity) of each segment.
        correlation: highest power of the features.
        text: the spec as JSON, read by `from_json`.

    Example:
        >>> spec = ContractionSpec.build("0e + 1o + 2e", "0e + 1o", 3)
        >>> spec.dim_in, spec.dim_out, spec.num_paths
        (9, 4, 41)
    """

    irreps_in: tuple[Irrep, ...]
    irreps_out: tuple[Irrep, ...]
    correlation: int

    if TYPE_CHECKING:  # set by __post_init__; not a field, because it is derived

        @property
        def text(self) -> str:
            """The spec as JSON."""

    def __post_init__(self) -> None:
        # Read in every call, a constant for torch.compile and an argument of the operators.
        text = json.dumps([self.irreps_in, self.irreps_out, self.correlation])
        object.__setattr__(self, "text", sys.intern(text))

    @classmethod
    def build(cls, irreps_in: object, irreps_out: object, correlation: int) -> ContractionSpec:
        """Return the spec of irreps and a correlation order.

        Args:
            irreps_in: irreps of the features; multiplicities (channels) are ignored.
            irreps_out: irreps of the result, likewise.
            correlation: highest power of the features, 1 to 4.

        Raises:
            ConfigError: an invalid irrep, a degree that is too high, or another correlation.
        """
        if not 1 <= correlation <= MAX_CORRELATION:
            raise ConfigError(f"correlation={correlation}", allowed=f"1 to {MAX_CORRELATION}")
        return cls(_irreps("irreps_in", irreps_in), _irreps("irreps_out", irreps_out), correlation)

    @property
    def dim_in(self) -> int:
        """Number of components of one channel of the input."""
        return dim(self.irreps_in)

    @property
    def dim_out(self) -> int:
        """Number of components of one channel of the output."""
        return dim(self.irreps_out)

    @functools.cached_property
    def blocks(self) -> tuple[tuple[Irrep, int, int], ...]:
        """(output irrep, order, number of paths) of each block of weights, in order."""
        return tuple(
            (out, order, basis(self.irreps_in, out, order).shape[-1])
            for out in self.irreps_out
            for order in range(1, self.correlation + 1)
        )

    @property
    def num_paths(self) -> int:
        """Number of weights per element and channel."""
        return sum(count for _, _, count in self.blocks)

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def from_json(text: str) -> ContractionSpec:
        """Return the spec of its `text`."""
        *sides, correlation = json.loads(text)
        return ContractionSpec(*(tuple(map(tuple, side)) for side in sides), correlation)  # type: ignore[arg-type, call-arg]


@dataclass(frozen=True)
class Polynomial:
    """The contraction as a sparse polynomial: row r adds c_r times a monomial to a component.

    The coefficient c_r is the sum over the entries of row r of value times the path's weight.

    Attributes:
        monomials: index tuple of each row, in the order of a traversal of the prefix tree.
        components: output component of each row.
        rows, paths, values: entries in COO form, sorted by row.
    """

    monomials: tuple[tuple[int, ...], ...]
    components: tuple[int, ...]
    rows: np.ndarray
    paths: np.ndarray
    values: np.ndarray


@functools.lru_cache(maxsize=64)
def polynomial(spec: ContractionSpec) -> Polynomial:
    """Return the sparse polynomial of a spec."""
    terms: dict[tuple[tuple[int, ...], int], list[tuple[int, float]]] = {}
    offsets = np.cumsum([0, *(2 * degree + 1 for degree, _ in spec.irreps_out)])
    start_path = 0
    for position, (out, order, count) in enumerate(spec.blocks):
        start_component = int(offsets[position // spec.correlation])
        coefficients = basis(spec.irreps_in, out, order)
        names = monomials(spec.dim_in, order)
        for component, monomial, path in np.argwhere(np.abs(coefficients) > ZERO):
            key = (names[monomial], start_component + int(component))
            value = float(coefficients[component, monomial, path])
            terms.setdefault(key, []).append((start_path + int(path), value))
        start_path += count
    keys = sorted(terms)
    entries = [(row, *entry) for row, key in enumerate(keys) for entry in terms[key]]
    rows, paths, values = zip(*entries, strict=True) if entries else ((), (), ())
    return Polynomial(
        tuple(monomial for monomial, _ in keys),
        tuple(component for _, component in keys),
        np.array(rows, dtype=np.int64),
        np.array(paths, dtype=np.int64),
        np.array(values, dtype=np.float64),
    )


def _irreps(name: str, irreps: object) -> tuple[Irrep, ...]:
    listed = tuple(irrep for _, irrep in Irreps(irreps))
    if not listed:
        raise ConfigError("no irreps", where=name, allowed="at least one, like 1o")
    for irrep in listed:
        if irrep.degree > MAX_DEGREE:
            raise ConfigError(f"irrep {irrep}", where=name, allowed=f"degree at most {MAX_DEGREE}")
    return listed

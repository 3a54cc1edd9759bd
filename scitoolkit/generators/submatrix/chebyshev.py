"""Density matrices from Chebyshev polynomials of submatrices, without diagonalisation.

Chemical potential and gap follow from the local density of states of a group's columns, computed by
Gauss quadrature with Lanczos steps. D is then a Chebyshev series of H[R, R] applied to the unit
vectors of the group, of the degree at which it differs from the step function by less than a
tolerance at all levels. The products are sparse, so a group costs its nonzeros times the degree
instead of |R|³; the degree is proportional to the width of the spectrum over the gap.

Source: Golub and Meurant 1994, "Matrices, moments and quadrature"; Goedecker 1999, "Linear scaling
electronic structure methods", Rev. Mod. Phys. 71, 1085 (Fermi operator expansion).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.polynomial import chebyshev

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.submatrix.density import DensityMethod, Levels, occupations
from scitoolkit.generators.submatrix.pattern import Cut
from scitoolkit.generators.submatrix.shares import shared
from scitoolkit.ops.codegen import load_library
from scitoolkit.ops.codegen.compile import read

WIDTH = 16  # columns of one call of the C code
FIRST_STEPS, MOST_STEPS = 24, 384
RESOLVED = 1e-4  # fraction of the electrons that a quadrature may place across the gap
MOST_DEGREE = 800
SHARE_OF_GAP = 0.8  # assumed free of levels: quadrature nodes are inside the bands
MARGIN = 0.01
INVARIANT = 1e-10
SMALL = 64


class ColumnPanel(NamedTuple):
    """Up to WIDTH columns of a group, and the submatrix of its rows in CSR form.

    Attributes:
        places: indices of the columns among the rows of the submatrix.
        pointer: index of the first entry of each row, int32.
        column: of each entry, int32.
        value: of each entry.
    """

    places: np.ndarray
    pointer: np.ndarray
    column: np.ndarray
    value: np.ndarray

    def units(self) -> np.ndarray:
        """Return the unit vectors of the columns as an array (|R|, WIDTH)."""
        made = np.zeros((self.pointer.size - 1, WIDTH))
        made[self.places, np.arange(self.places.size)] = 1.0
        return made

    def csr(self) -> tuple[Any, ...]:
        """Return the submatrix as arguments of the C code."""
        number = ctypes.c_int64(self.pointer.size - 1)
        return (number, *(_p(a) for a in (self.pointer, self.column, self.value)))


class ChebyshevSubmatrices(DensityMethod):
    """Density matrices from submatrices by Chebyshev series, without diagonalisation.

    The result equals that of `Submatrices` to the tolerance; the method is efficient for a wide gap
    or a high temperature. The ranks of a job share the submatrices by cost; all have the results.

    Args:
        matrix: H, sparse, symmetric.
        groups: partition of the columns into groups that share a submatrix. Multiples of 16
            columns are fastest.
        pattern: rows of each column's submatrix, such as `powers(H, 2)`; must contain that of H.
        tolerance: largest error of an occupation.

    Raises:
        ConfigError: H is not square or symmetric, or the groups are not a partition of its columns.
        NumericalError: H is not finite.

    Example:
        >>> from scitoolkit.generators.submatrix.pattern import in_blocks, powers
        >>> levels = np.where(np.arange(200) % 2, 2.0, -2.0)
        >>> hops = np.full(199, 0.3)
        >>> h = sp.diags_array([levels, hops, hops], offsets=[0, 1, -1])
        >>> found = ChebyshevSubmatrices(h, in_blocks(range(200), 16), powers(h, 6)).density(100)
        >>> bool(abs(found.electrons - 100) < 1e-5)
        True
    """

    def __init__(
        self, matrix: Any, groups: Sequence[np.ndarray], pattern: Any, tolerance: float = 1e-7
    ) -> None:
        if not 1e-12 <= tolerance < 0.1:
            raise ConfigError(f"tolerance {tolerance:g}", allowed="1e-12 to 0.1")
        super().__init__(Cut(matrix, groups, pattern))
        self._tolerance = tolerance
        self._middle, self._half = _spectrum(self.matrix)
        shift = self._middle * sp.eye_array(self.matrix.shape[0])
        self._scaled = sp.csr_array((self.matrix - shift) / self._half)
        self._steps = FIRST_STEPS
        self._found: Levels | None = None
        self._library = load_library(read(__file__, "chebyshev.c"))
        self._library.lanczos.restype = ctypes.c_int64

    def levels(self, electrons: float, temperature: float = 0.0) -> Levels:
        """Return the nodes and weights of the quadratures of all groups.

        Raises:
            NumericalError: the gap or the temperature is so small that more than 384 Lanczos steps
                would be required.
        """
        while True:
            levels = self._found if self._found is not None else self._quadrature()
            self._found = levels
            missed = self._missed(levels, electrons, temperature)
            if missed <= RESOLVED:
                return levels
            if self._steps >= MOST_STEPS:
                raise NumericalError(
                    f"{self._steps} steps of Lanczos do not resolve the "
                    + (f"temperature {temperature:.2g}" if temperature else "gap, if there is one")
                    + f" in a spectrum of width {2 * self._half:.3g}",
                    fix="Submatrices(matrix, groups, pattern), or a higher temperature",
                )
            self._steps, self._found = min(2 * self._steps, MOST_STEPS), None

    def _missed(self, levels: Levels, electrons: float, temperature: float) -> float:
        """Return the fraction of the electrons that the quadratures may misplace."""
        if temperature > 0:  # the Fermi function has its poles at mu +- i pi T
            y = math.pi * temperature / self._half
            return float((y + math.hypot(1, y)) ** (-2 * self._steps))
        bottom, top = levels.plateau(electrons)
        gap = min((top - bottom) / (2 * self._half), 1 - 1e-9)
        return ((1 - gap) / (1 + gap)) ** self._steps

    def _quadrature(self) -> Levels:
        """Return the levels from Lanczos steps of all groups."""
        seen = shared(self._costs(), self._nodes)
        return Levels(*(np.concatenate(parts) for parts in zip(*seen, strict=True)))

    def _nodes(self, group: int) -> tuple[np.ndarray, np.ndarray]:
        """Return nodes and weights of the quadratures of a group's columns."""
        values, weights = [], []
        for panel in self._panels(group):
            a = panel.units() / math.sqrt(panel.places.size)
            b = np.zeros_like(a)
            alpha, beta = np.empty(self._steps), np.empty(self._steps)
            steps = self._library.lanczos(
                *panel.csr(),
                ctypes.c_int64(self._steps),
                ctypes.c_double(INVARIANT),
                _p(a),
                _p(b),
                _p(alpha),
                _p(beta),
            )
            nodes, vectors = _tridiagonal(alpha[:steps], beta[: steps - 1])
            values.append(self._middle + self._half * nodes)
            weights.append(panel.places.size * vectors[0] ** 2)
        return np.concatenate(values), np.concatenate(weights)

    def _occupied(self, electrons: float, mu: float, temperature: float) -> sp.csr_array:
        factors = self._series(electrons, mu, temperature)

        def columns(group: int) -> np.ndarray:
            blocks = []
            for panel in self._panels(group):
                a = panel.units()
                b, out = np.zeros_like(a), np.zeros_like(a)
                degree = ctypes.c_int64(factors.size - 1)
                self._library.series(*panel.csr(), degree, *map(_p, (factors, a, b, out)))
                blocks.append(out[:, : panel.places.size])
            return np.concatenate(blocks, 1)

        return self.cut.assembled(shared(self._costs(), columns))

    def _costs(self) -> list[float]:
        return [float(r.size * g.size) for r, g in zip(self.cut.rows, self.cut.groups, strict=True)]

    def _series(self, electrons: float, mu: float, temperature: float) -> np.ndarray:
        """Return the Chebyshev coefficients of the occupations over the spectrum."""
        centre = (mu - self._middle) / self._half
        if temperature > 0:
            return _fermi_series(centre, temperature / self._half, self._tolerance)
        bottom, top = self.levels(electrons).plateau(electrons)
        free = SHARE_OF_GAP * (top - bottom) / (2 * self._half)
        return step_series(centre, min(free, 1.0), self._tolerance)

    def _panels(self, group: int) -> Iterator[ColumnPanel]:
        made, places = self.cut.restricted(self._scaled, group), self.cut.own(group)
        indices = (made.indptr.astype(np.int32), made.indices.astype(np.int32))
        for first in range(0, places.size, WIDTH):
            yield ColumnPanel(places[first : first + WIDTH], *indices, made.data)


def step_series(centre: float, free: float, tolerance: float) -> np.ndarray:
    """Return Chebyshev coefficients of a step function, 1 below and 0 above a gap.

    Args:
        centre: of the gap, between -1 and 1.
        free: half of its width; the polynomial is not constrained in the gap.
        tolerance: largest error on [-1, 1] outside the gap.

    Raises:
        NumericalError: the gap requires a degree above 800.

    Example:
        >>> c = step_series(0.1, 0.2, 1e-6)
        >>> outside = np.array([-1.0, -0.5, -0.1, 0.3, 1.0])
        >>> bool(abs(chebyshev.chebval(outside, c) - [1, 1, 1, 0, 0]).max() < 1e-6)
        True
    """
    rate = math.log((1 + free) / max(1 - free, 1e-9)) / 2
    degree = max(8, math.ceil(math.log(1 / tolerance) / rate))
    while degree <= MOST_DEGREE:
        x = np.cos(np.pi * (np.arange(3 * degree) + 0.5) / (3 * degree))
        x = np.concatenate([x, [centre - free, centre + free]])
        x = x[(np.abs(x - centre) >= free) & (np.abs(x) <= 1)]
        basis = chebyshev.chebvander(x, degree)
        wanted = (x < centre).astype(float)
        # Discard polynomials that are small outside the gap and large inside.
        factors = np.linalg.lstsq(basis, wanted, rcond=1e-13)[0]
        if np.abs(basis @ factors - wanted).max() <= tolerance:
            return factors
        degree = math.ceil(1.1 * degree)
    raise NumericalError(
        f"a gap of {free:.2g} of the spectrum's width needs a polynomial of degree {degree}",
        allowed=f"up to {MOST_DEGREE}",
        fix="Submatrices(matrix, groups, pattern), or a larger tolerance",
    )


def _fermi_series(centre: float, temperature: float, tolerance: float) -> np.ndarray:
    """Return Chebyshev coefficients of a Fermi function to a tolerance."""
    degree = 16
    while degree <= 2 * MOST_DEGREE:
        nodes = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
        values = occupations(nodes, centre, temperature)
        factors = 2 / (degree + 1) * (chebyshev.chebvander(nodes, degree).T @ values)
        factors[0] /= 2
        if np.abs(factors[-degree // 4 :]).sum() <= tolerance:
            return factors
        degree *= 2
    raise NumericalError(
        f"a temperature of {temperature / 2:.2g} of the spectrum's width needs a polynomial of "
        f"degree {degree}",
        allowed=f"up to {2 * MOST_DEGREE}",
        fix="Submatrices(matrix, groups, pattern), or a higher temperature",
    )


def _spectrum(matrix: sp.csr_array) -> tuple[float, float]:
    """Return the centre and half the width of an interval that contains all eigenvalues.

    It also contains those of the submatrices (Cauchy interlacing).
    """
    if matrix.shape[0] <= SMALL:
        eigenvalues = np.linalg.eigvalsh(matrix.toarray())
        low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    else:
        from scipy.sparse.linalg import eigsh

        start = np.random.default_rng(0).standard_normal(matrix.shape[0])
        low, high = (
            float(eigsh(matrix, 1, which=end, tol=1e-3, v0=start, return_eigenvectors=False)[0])
            for end in ("SA", "LA")
        )
    margin = MARGIN * max(high - low, 1e-12 * max(abs(low), abs(high), 1.0))
    return (low + high) / 2, (high - low) / 2 + margin


def _tridiagonal(alpha: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from scipy.linalg import eigh_tridiagonal

    values, vectors = eigh_tridiagonal(alpha, beta)
    return values, vectors


def _p(array: np.ndarray) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)

"""Matrix functions of sparse symmetric matrices from many small dense ones (submatrix method).

For a group of columns b, take R, the rows that a sparsity pattern has in b, diagonalise the dense
matrix H[R, R], and use the columns b of its function for the columns b of f(H). Exact where the
pattern is closed under products; otherwise the error falls as f(H) decays, which for a density
matrix is with the gap. The cost is linear in the size of H.

Source: Lass, Schade, Kühne and Plessl 2020, "A submatrix-based method for approximate matrix
function evaluation in the quantum chemistry code CP2K", SC20.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from scitoolkit.core.errors import ConfigError, NumericalError

SYMMETRY = 1e-10
BISECTIONS = 200
KEPT_BYTES = 2 * 10**9
SLACK = 1e-4
METAL = 1e-2  # smallest gap over width: below it levels of finite submatrices look like a gap

Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class DensityMatrix:
    """A density matrix and what it cost in accuracy.

    Attributes:
        matrix: D, occupations 0 to 1, on the pattern.
        mu: chemical potential.
        energy: trace of D H.
        electrons: trace of D.
        gap: width of the chemical potentials at which the electrons are right.
        error: estimated largest error of D on the pattern of H: its deviation from idempotency.
    """

    matrix: sp.csr_array
    mu: float
    energy: float
    electrons: float
    gap: float
    error: float


@dataclass(frozen=True)
class Columns:
    """A group of columns of H, its submatrix's rows, and the decomposition.

    Attributes:
        columns: numbers of the columns.
        rows: R, sorted.
        values: eigenvalues, (|R|,).
        own: rows `columns` of the eigenvectors, (|columns|, |R|).
        vectors: all of them, (|R|, |R|), None where they are computed again.
    """

    columns: np.ndarray
    rows: np.ndarray
    values: np.ndarray
    own: np.ndarray
    vectors: np.ndarray | None = field(default=None, repr=False)


def powers(matrix: Any, hops: int) -> sp.csr_array:
    """Return the sparsity pattern of (1 + matrix)**hops as ones.

    Example:
        >>> chain = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(5, 5))
        >>> powers(chain, 2).sum(1).tolist()
        [3, 4, 5, 4, 3]
    """
    if hops < 1:
        raise ConfigError(f"hops {hops}", allowed="at least 1")
    base = sp.csr_array(matrix)
    ones = sp.csr_array((np.ones(base.nnz, np.int32), base.indices, base.indptr), base.shape)
    ones = sp.csr_array(ones + sp.eye_array(base.shape[0], dtype=np.int32))
    ones.data[:] = 1
    found = ones
    for _ in range(hops - 1):
        found = found @ ones
        found.data[:] = 1
    found.sort_indices()
    return found


def in_blocks(order: Sequence[int] | np.ndarray, size: int, width: int = 1) -> list[np.ndarray]:
    """Return groups of columns: `size` neighbours of an order of atoms with `width` columns each.

    Example:
        >>> [g.tolist() for g in in_blocks([1, 0, 2], 2, 2)]
        [[0, 1, 2, 3], [4, 5]]
    """
    order = np.asarray(order)
    return [
        np.sort((width * order[i : i + size, None] + np.arange(width)).ravel())
        for i in range(0, order.size, size)
    ]


def bisected(positions: np.ndarray, size: int) -> np.ndarray:
    """Return an order of points in which runs of `size` are compact, by recursive bisection.

    Example:
        >>> bisected(np.array([[0.0], [3.0], [1.0], [2.0]]), 2).tolist()
        [0, 2, 3, 1]
    """

    def split(index: np.ndarray) -> np.ndarray:
        if index.size <= size:
            return index
        points = positions[index]
        axis = int(np.ptp(points, axis=0).argmax())
        ordered = index[np.argsort(points[:, axis], kind="stable")]
        half = size * max(1, round(index.size / size / 2))
        return np.concatenate([split(ordered[:half]), split(ordered[half:])])

    return split(np.arange(len(positions)))


class Submatrices:
    """The submatrices of a symmetric matrix, diagonalised once; any function follows.

    Args:
        matrix: H, sparse, symmetric.
        groups: groups of columns that share a submatrix; every column in one.
        pattern: rows of each column's submatrix, such as `powers(H, 2)`; it must contain H's.

    Raises:
        ConfigError: H is not square or not symmetric, or groups are no partition of the columns.
        NumericalError: H is not finite.
    """

    def __init__(self, matrix: Any, groups: Sequence[np.ndarray], pattern: Any) -> None:
        self.matrix: sp.csr_array = sp.csr_array(matrix)
        _require_symmetric(self.matrix)
        covered = np.sort(np.concatenate(groups)) if len(groups) else np.empty(0)
        if not np.array_equal(covered, np.arange(self.matrix.shape[0])):
            raise ConfigError("the groups are no partition of the columns")
        self._pattern = sp.csr_array(pattern)
        ones = sp.csr_array(
            (np.ones(self.matrix.nnz), self.matrix.indices, self.matrix.indptr), self.matrix.shape
        )
        if (ones * (self._pattern != 0)).nnz < ones.nnz:
            raise ConfigError("the pattern lacks entries of the matrix", fix="powers(matrix, 1)")
        self._parts = [self._decompose(np.asarray(g)) for g in groups]

    @property
    def sizes(self) -> np.ndarray:
        """Rows of each submatrix."""
        return np.array([part.rows.size for part in self._parts])

    def function(self, f: Function) -> sp.csr_array:
        """Return f(H) on the pattern, symmetrised, for any function of the eigenvalues.

        Example:
            >>> h = sp.diags_array([0.1, 2.0, 0.1], offsets=[-1, 0, 1], shape=(40, 40))
            >>> parts = Submatrices(h, in_blocks(range(40), 4), powers(h, 6))
            >>> inverse = parts.function(lambda w: 1 / w)
            >>> bool(abs(inverse @ h - np.eye(40)).max() < 1e-6)
            True
        """
        rows, cols, values = [], [], []
        for part in self._parts:
            vectors = self._vectors(part)
            block = (vectors * f(part.values)) @ part.own.T
            rows.append(np.repeat(part.rows, part.columns.size))
            cols.append(np.tile(part.columns, part.rows.size))
            values.append(block.ravel())
        entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(cols)))
        made = sp.csr_array(sp.coo_array(entries, shape=self.matrix.shape))
        return sp.csr_array((made + made.T) / 2)

    def sign(self, mu: float = 0.0) -> sp.csr_array:
        """Return sign(H - mu)."""
        return self.function(lambda w: np.sign(w - mu))

    def inverse(self) -> sp.csr_array:
        """Return H^-1.

        Raises:
            NumericalError: a submatrix is singular.
        """
        self._require(lambda w: np.abs(w).min() > 1e-12 * np.abs(w).max(), "singular")
        return self.function(lambda w: 1 / w)

    def inverse_root(self) -> sp.csr_array:
        """Return H^(-1/2).

        Raises:
            NumericalError: a submatrix is not positive definite.
        """
        self._require(lambda w: w.min() > 0, "not positive definite")
        return self.function(lambda w: 1 / np.sqrt(w))

    def count(self, mu: float, temperature: float = 0.0) -> float:
        """Return the electrons at a chemical potential, without any diagonalisation."""
        return float(sum(
            (part.own**2 @ occupations(part.values, mu, temperature)).sum() for part in self._parts
        ))  # fmt: skip

    def chemical_potential(self, electrons: float, temperature: float = 0.0) -> float:
        """Return mu at which there are that many electrons, by bisection.

        Without a temperature it is the middle of the interval in which the count is right to a
        tenth of an electron or 1e-4 of all.

        Raises:
            NumericalError: the electrons do not fit, or there is no gap at temperature 0.
        """
        if not 0 <= electrons <= self.matrix.shape[0]:
            raise NumericalError(
                f"{electrons:g} electrons", allowed=f"0 to {self.matrix.shape[0]} (one a state)"
            )
        if temperature > 0:
            return self._bisect(electrons, temperature)
        bottom, top = self._plateau(electrons)
        return (bottom + top) / 2

    def density(self, electrons: float, temperature: float = 0.0) -> DensityMatrix:
        """Return the density matrix of that many electrons.

        Args:
            electrons: trace of D; half of the electrons without spin polarisation.
            temperature: of a Fermi function, in the unit of H; 0 fills states below mu.

        Raises:
            NumericalError: no gap at temperature 0: the density matrix does not decay.
        """
        mu = self.chemical_potential(electrons, temperature)
        gap = self.gap(electrons)
        counted = self.count(mu, temperature)
        smallest = METAL * self._width()
        if temperature == 0 and gap < smallest:
            raise NumericalError(
                f"gap {gap:.2g} at mu = {mu:.4g}: the density matrix of a metal decays slowly",
                allowed=f"a gap above {smallest:.2g}", fix="a temperature, such as "
                f"{max(smallest, 5 * gap):.2g}",
            )  # fmt: skip
        d = self.function(lambda w: occupations(w, mu, temperature))
        return DensityMatrix(
            d, mu, float((d * self.matrix).sum()), counted, gap, self._idempotency(d, temperature)
        )

    def gap(self, electrons: float) -> float:
        """Return the width of the chemical potentials at which there are that many electrons."""
        bottom, top = self._plateau(electrons)
        return top - bottom

    def _idempotency(self, d: sp.csr_array, temperature: float) -> float:
        """Return twice the largest entry of D² - D on the pattern of H, at temperature 0.

        D = P + e with a projector P: D² - D = P e + e P - e to first order, which halves the part
        of e that mixes occupied and empty states evenly.
        """
        if temperature > 0:
            return math.nan
        ones = sp.csr_array(
            (np.ones(self.matrix.nnz), self.matrix.indices, self.matrix.indptr), self.matrix.shape
        )
        return 2 * float(abs((d @ d - d) * ones).max())

    def _plateau(self, electrons: float) -> tuple[float, float]:
        """Return the chemical potentials between which the count is right but for SLACK."""
        slack = max(0.1, SLACK * electrons)
        return self._bisect(electrons - slack), self._bisect(electrons + slack)

    def _bisect(self, electrons: float, temperature: float = 0.0) -> float:
        low = min(float(part.values[0]) for part in self._parts) - 1.0
        high = max(float(part.values[-1]) for part in self._parts) + 1.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            if self.count(middle, temperature) < electrons:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    def _width(self) -> float:
        return max(float(p.values[-1] - p.values[0]) for p in self._parts)

    def _rows(self, columns: np.ndarray) -> np.ndarray:
        indptr, indices = self._pattern.indptr, self._pattern.indices
        parts = [indices[indptr[c] : indptr[c + 1]] for c in columns]
        return np.unique(np.concatenate([*parts, columns]))

    def _decompose(self, columns: np.ndarray) -> Columns:
        rows = self._rows(columns)
        values, vectors = np.linalg.eigh(self._dense(rows))
        own = vectors[np.searchsorted(rows, columns)].copy()
        self._kept = getattr(self, "_kept", 0) + vectors.nbytes
        keep = self._kept < KEPT_BYTES
        return Columns(columns, rows, values, own, vectors if keep else None)

    def _dense(self, rows: np.ndarray) -> np.ndarray:
        return self.matrix[rows][:, rows].toarray()

    def _vectors(self, part: Columns) -> np.ndarray:
        if part.vectors is not None:
            return part.vectors
        return np.linalg.eigh(self._dense(part.rows))[1]

    def _require(self, holds: Callable[[np.ndarray], bool], what: str) -> None:
        for part in self._parts:
            if not holds(part.values):
                raise NumericalError(f"the submatrix of columns {part.columns[:4]} is {what}")

    def __iter__(self) -> Iterator[Columns]:
        """Iterate over the groups."""
        return iter(self._parts)


def occupations(values: np.ndarray, mu: float, temperature: float = 0.0) -> np.ndarray:
    """Return Fermi occupations of energies; a step at temperature 0.

    Example:
        >>> occupations(np.array([-1.0, 0.0, 1.0]), 0.0).tolist()
        [1.0, 0.5, 0.0]
    """
    if temperature == 0:
        return (values < mu) + 0.5 * (values == mu)
    from scipy.special import expit

    return expit((mu - values) / temperature)


def _require_symmetric(matrix: sp.csr_array) -> None:
    if matrix.shape[0] != matrix.shape[1]:
        raise ConfigError(f"a matrix of shape {matrix.shape}", allowed="a square one")
    if not np.isfinite(matrix.data).all():
        raise NumericalError("the matrix is not finite")
    scale = float(abs(matrix).max()) if matrix.nnz else 0.0
    skew = float(abs(matrix - matrix.T).max()) if matrix.nnz else 0.0
    if skew > SYMMETRY * scale:
        raise ConfigError(
            f"the matrix is not symmetric (by {skew:.2g})", allowed="a symmetric one",
            fix="(H + H.T) / 2, if the difference is rounding",
        )  # fmt: skip

"""Functions of sparse symmetric matrices by the submatrix method.

For a group of columns b with rows R in a sparsity pattern, the dense matrix H[R, R] is
diagonalised, and the columns b of its function approximate the columns b of f(H). The result is
exact if the pattern is closed under products; otherwise the error decreases with the decay of f(H),
which for a density matrix depends on the gap. The cost is linear in the size of H.

Source: Lass, Schade, Kühne and Plessl 2020, "A submatrix-based method for approximate matrix
function evaluation in the quantum chemistry code CP2K", SC20.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from scitoolkit.core.errors import NumericalError
from scitoolkit.generators.submatrix.density import DensityMethod, Levels, occupations
from scitoolkit.generators.submatrix.pattern import Cut
from scitoolkit.generators.submatrix.shares import shared

KEPT_BYTES = 2 * 10**9

Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class SubmatrixEigen:
    """Eigendecomposition of a group's submatrix.

    Attributes:
        values: eigenvalues, (|R|,).
        own: rows of the eigenvectors for the group's columns, (|group|, |R|).
        vectors: all eigenvectors, (|R|, |R|), or None if they are recomputed when needed.
    """

    values: np.ndarray
    own: np.ndarray
    vectors: np.ndarray | None = field(default=None, repr=False)


class Submatrices(DensityMethod):
    """Submatrices of a symmetric matrix, which are diagonalised once for all functions.

    The ranks of a job share the submatrices by cost; all have the results.

    Args:
        matrix: H, sparse, symmetric.
        groups: partition of the columns into groups that share a submatrix.
        pattern: rows of each column's submatrix, such as `powers(H, 2)`; must contain that of H.

    Raises:
        ConfigError: H is not square or symmetric, or the groups are not a partition of its columns.
        NumericalError: H is not finite.
    """

    def __init__(self, matrix: Any, groups: Sequence[np.ndarray], pattern: Any) -> None:
        super().__init__(Cut(matrix, groups, pattern))
        self._kept = 0
        self._parts: dict[int, SubmatrixEigen] = {}  # of the groups of this rank
        seen = shared(self._costs(), self._decompose)
        self._levels = Levels(*(np.concatenate(parts) for parts in zip(*seen, strict=True)))

    def function(self, f: Function) -> sp.csr_array:
        """Return f(H) on the pattern, symmetrised, for any function of the eigenvalues.

        Example:
            >>> from scitoolkit.generators.submatrix.pattern import in_blocks, powers
            >>> h = sp.diags_array([0.1, 2.0, 0.1], offsets=[-1, 0, 1], shape=(40, 40))
            >>> parts = Submatrices(h, in_blocks(range(40), 4), powers(h, 6))
            >>> inverse = parts.function(lambda w: 1 / w)
            >>> bool(abs(inverse @ h - np.eye(40)).max() < 1e-6)
            True
        """

        def columns(number: int) -> np.ndarray:
            part = self._parts[number]
            block: np.ndarray = (self._vectors(number) * f(part.values)) @ part.own.T
            return block

        return self.cut.assembled(shared(self._costs(), columns))

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

    def levels(self, electrons: float, temperature: float = 0.0) -> Levels:
        """Return the eigenvalues of all submatrices with the weights of the groups' columns."""
        del electrons, temperature  # all levels are known
        return self._levels

    def _occupied(self, electrons: float, mu: float, temperature: float) -> sp.csr_array:
        del electrons
        return self.function(lambda w: occupations(w, mu, temperature))

    def _costs(self) -> list[float]:
        return [float(size) ** 3 for size in self.sizes]

    def _decompose(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Diagonalise a submatrix; return its levels and the weights of the group in them."""
        values, vectors = np.linalg.eigh(self.cut.restricted(self.matrix, number).toarray())
        own = vectors[self.cut.own(number)].copy()
        self._kept += vectors.nbytes
        stored = vectors if self._kept < KEPT_BYTES else None
        self._parts[number] = SubmatrixEigen(values, own, stored)
        return values, (own**2).sum(0)

    def _vectors(self, number: int) -> np.ndarray:
        stored = self._parts[number].vectors
        if stored is not None:
            return stored
        return np.linalg.eigh(self.cut.restricted(self.matrix, number).toarray())[1]

    def _require(self, holds: Callable[[np.ndarray], bool], what: str) -> None:
        def check(number: int) -> None:
            if not holds(self._parts[number].values):
                columns = self.cut.groups[number][:4]
                raise NumericalError(f"the submatrix of columns {columns} is {what}")

        shared(self._costs(), check)

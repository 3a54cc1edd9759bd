"""Sparsity patterns and groups of columns that define submatrices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.submatrix.shares import shared

SYMMETRY = 1e-10
SNAP = 0.3  # fraction of a block's points by which a cut may be moved to a gap


def powers(matrix: Any, hops: int) -> sp.csr_array:
    """Return the sparsity pattern of (1 + matrix)**hops as a matrix of ones.

    Example:
        >>> chain = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(5, 5))
        >>> powers(chain, 2).sum(1).tolist()
        [3, 4, 5, 4, 3]
    """
    if hops < 1:
        raise ConfigError(f"hops {hops}", allowed="at least 1")
    base = sp.csr_array(matrix)
    ones = sp.csr_array(_ones(base, np.int32) + sp.eye_array(base.shape[0], dtype=np.int32))
    ones.data[:] = 1
    product = ones
    for _ in range(hops - 1):
        product = product @ ones
        product.data[:] = 1
    product.sort_indices()
    return product


def within(positions: np.ndarray, distance: float, width: int = 1, cell: Any = None) -> Any:
    """Return the sparsity pattern of all pairs of points within a distance, as a matrix of ones.

    Args:
        positions: of the points, (n, dims).
        distance: largest distance of a pair.
        width: number of columns of each point.
        cell: edges of a periodic rectangular box, (dims,), or None.

    Example:
        >>> within(np.array([[0.0], [1.0], [3.5]]), 1.2, cell=[4.0]).toarray().tolist()
        [[1, 1, 1], [1, 1, 0], [1, 0, 1]]
    """
    from scipy.spatial import cKDTree

    points = np.asarray(positions, dtype=float)
    if cell is not None:
        points = points % np.asarray(cell, dtype=float)
    tree = cKDTree(points, boxsize=cell)
    i, j = tree.query_pairs(distance, output_type="ndarray").T
    every = np.arange(len(points))
    rows, cols = np.concatenate([i, j, every]), np.concatenate([j, i, every])
    pattern = sp.coo_array((np.ones(rows.size, np.int32), (rows, cols)), (len(points),) * 2)
    return sp.csr_array(sp.kron(pattern, np.ones((width, width), np.int32)))


def in_blocks(order: Sequence[int] | np.ndarray, size: int, width: int = 1) -> list[np.ndarray]:
    """Return groups of columns: `size` consecutive atoms of an order, with `width` columns each.

    Example:
        >>> [g.tolist() for g in in_blocks([1, 0, 2], 2, 2)]
        [[0, 1, 2, 3], [4, 5]]
    """
    order = np.asarray(order)
    return [_columns(order[i : i + size], width) for i in range(0, order.size, size)]


def compact_blocks(positions: np.ndarray, size: int, width: int = 1) -> list[np.ndarray]:
    """Return groups of columns of points in boxes of about equal edges.

    The bounding box is recursively cut into slabs of about the edge of a cube of `size` points. A
    cut moves to the widest nearby gap, so that it runs between crystal layers. A submatrix
    includes the neighbours of its group, which are fewest for a cube.

    Args:
        positions: of the points, (n, dims).
        size: average number of points in a group.
        width: number of columns of each point.

    Example:
        >>> points = np.array([[0.0], [3.0], [1.0], [2.0]])
        >>> [g.tolist() for g in compact_blocks(points, 2)]
        [[0, 2], [1, 3]]
    """
    points = np.asarray(positions, dtype=float)
    slabs = _slabs(points, size)

    def split(index: np.ndarray, slabs: tuple[int, ...]) -> Iterator[np.ndarray]:
        axis = int(np.argmax(slabs))
        if slabs[axis] == 1 or index.size < 2:
            yield index
            return
        ordered = index[np.argsort(points[index, axis], kind="stable")]
        left = slabs[axis] // 2
        cut = _cut(points[ordered, axis], left / slabs[axis], 1 / slabs[axis])
        for part, number in ((ordered[:cut], left), (ordered[cut:], slabs[axis] - left)):
            yield from split(part, (*slabs[:axis], number, *slabs[axis + 1 :]))

    return [_columns(part, width) for part in split(np.arange(len(points)), slabs)]


class Cut:
    """Sparse symmetric matrix with groups of columns and the rows of each group's submatrix.

    Args:
        matrix: H, sparse, symmetric.
        groups: partition of the columns into groups that share a submatrix.
        pattern: rows of each column's submatrix, such as `powers(H, 2)`; must contain that of H.

    Raises:
        ConfigError: H is not square or symmetric, or the groups are not a partition of its columns.
        NumericalError: H is not finite.
    """

    def __init__(self, matrix: Any, groups: Sequence[np.ndarray], pattern: Any) -> None:
        self.matrix: sp.csr_array = sp.csr_array(matrix)
        self.matrix.sort_indices()
        _require_symmetric(self.matrix)
        covered = np.sort(np.concatenate(groups)) if len(groups) else np.empty(0)
        if not np.array_equal(covered, np.arange(self.matrix.shape[0])):
            raise ConfigError("the groups are not a partition of the columns")
        self.groups: list[np.ndarray] = [np.asarray(g) for g in groups]
        pattern = sp.csr_array(pattern)
        if (_ones(self.matrix) * (pattern != 0)).nnz < self.matrix.nnz:
            raise ConfigError("the pattern lacks entries of the matrix", fix="powers(matrix, 1)")
        self.rows: list[np.ndarray] = [_rows(pattern, g) for g in self.groups]

    def restricted(self, matrix: sp.csr_array, number: int) -> sp.csr_array:
        """Return the sparse submatrix of a matrix of the shape of H for a group."""
        rows = self.rows[number]
        return matrix[rows][:, rows]

    def own(self, number: int) -> np.ndarray:
        """Return the indices of the group's columns among the rows of its submatrix."""
        return np.searchsorted(self.rows[number], self.groups[number])

    def assembled(self, blocks: Sequence[np.ndarray]) -> sp.csr_array:
        """Return the symmetrised matrix assembled from the groups' columns, (|R|, |group|) each."""
        rows = [np.repeat(r, g.size) for r, g in zip(self.rows, self.groups, strict=True)]
        cols = [np.tile(g, r.size) for r, g in zip(self.rows, self.groups, strict=True)]
        entries = np.concatenate([b.ravel() for b in blocks])
        made = sp.csr_array(
            sp.coo_array(
                (entries, (np.concatenate(rows), np.concatenate(cols))), shape=self.matrix.shape
            )
        )
        return sp.csr_array((made + made.T) / 2)

    def idempotency(self, d: sp.csr_array) -> float:
        """Return the largest entry of D² - D on the pattern of H."""
        ones = _ones(self.matrix)

        def defect(number: int) -> float:
            group = self.groups[number]
            near = _rows(ones, group)  # D² is only required there
            all_of = d[group]
            between = np.union1d(self.rows[number], all_of.indices)
            columns = all_of[:, between].toarray().T
            square = d[near][:, between].toarray() @ columns
            off = square - columns[np.searchsorted(between, near)]
            return float(np.abs(off * ones[group][:, near].toarray().T).max())

        return max(shared([float(rows.size) for rows in self.rows], defect))


def _slabs(points: np.ndarray, size: int) -> tuple[int, ...]:
    """Return the number of slabs along each axis."""
    extents = np.ptp(points, axis=0)
    axes = [axis for axis in range(points.shape[1]) if extents[axis] > 0]
    edge = math.inf
    while axes:
        # n points span n - 1 spacings: the extent is one spacing less than the edge of the volume.
        edge = (size / len(points) * math.prod(extents[a] for a in axes)) ** (1 / len(axes))
        thin = [a for a in axes if extents[a] < edge]
        if not thin:
            break
        axes = [a for a in axes if a not in thin]
    return tuple(
        max(1, round(float(extents[a]) / edge)) if a in axes else 1 for a in range(extents.size)
    )


def _cut(sorted_values: np.ndarray, share: float, slab: float) -> int:
    """Return the number of points left of a cut: about a fraction of them, at the widest gap."""
    n = sorted_values.size
    low = max(1, math.floor(n * (share - SNAP * slab)))
    high = min(n - 1, math.ceil(n * (share + SNAP * slab)))
    gaps = sorted_values[low : high + 1] - sorted_values[low - 1 : high]
    nearest = np.abs(np.arange(low, high + 1) - n * share)
    best = np.flatnonzero(gaps >= gaps.max() * (1 - 1e-9))
    return low + int(best[np.argmin(nearest[best])])


def _columns(points: np.ndarray, width: int) -> np.ndarray:
    return np.sort((width * points[:, None] + np.arange(width)).ravel())


def _rows(pattern: sp.csr_array, columns: np.ndarray) -> np.ndarray:
    indptr, indices = pattern.indptr, pattern.indices
    parts = [indices[indptr[c] : indptr[c + 1]] for c in columns]
    return np.unique(np.concatenate([*parts, columns]))


def _ones(matrix: sp.csr_array, dtype: Any = float) -> sp.csr_array:
    ones = np.ones(matrix.nnz, dtype)
    return sp.csr_array((ones, matrix.indices, matrix.indptr), matrix.shape)


def _require_symmetric(matrix: sp.csr_array) -> None:
    if matrix.shape[0] != matrix.shape[1]:
        raise ConfigError(f"a matrix of shape {matrix.shape}", allowed="a square matrix")
    if not np.isfinite(matrix.data).all():
        raise NumericalError("the matrix is not finite")
    scale = float(abs(matrix).max()) if matrix.nnz else 0.0
    skew = float(abs(matrix - matrix.T).max()) if matrix.nnz else 0.0
    if skew > SYMMETRY * scale:
        raise ConfigError(
            f"the matrix is not symmetric (by {skew:.2g})",
            allowed="a symmetric one",
            fix="(H + H.T) / 2, if the difference is rounding",
        )

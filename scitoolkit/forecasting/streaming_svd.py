"""Singular value decomposition of a matrix that is read block by block, with error estimates.

The matrix is A = (X - C B) diag(w): the field X (time, cell) minus its regression on C, with
weighted cells. A is never formed. Randomised subspace iteration (Halko, Martinsson and Tropp 2011,
doi:10.1137/090771806, algorithm 4.4) requires only A Q and A'(A Q), both computed in one pass over
the blocks. All sums are in float64: a float32 Gram matrix loses all modes below about 3e-4 of the
first.

Letters: N times, P unmasked cells, K regressors, L sketch width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scitoolkit.core.errors import NumericalError
from scitoolkit.forecasting.field_matrix import FieldReader

# Columns converted to float64 at a time, so that 64 rows fit in a core's second-level cache.
_TILE = 2048
# The Gram matrix squares the condition number: for modes below this ratio to the first, its modes
# are not orthonormal to 1e-10, and LAPACK's SVD of the matrix itself is used.
_GRAM_SAFE = 1e-3


@dataclass(frozen=True)
class RowProcesses:
    """Partition of rows and sums over a `torch.distributed` group; trivial without a group."""

    group: Any = None

    def share(self, count: int) -> tuple[int, int]:
        """Return (start, stop) of this process's contiguous part of `count` rows."""
        if self.group is None:
            return 0, count
        import torch.distributed as dist

        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        return count * rank // size, count * (rank + 1) // size

    def sum(self, array: np.ndarray) -> np.ndarray:
        """Sum an array over the processes in place and return it; all get identical bytes."""
        if self.group is not None:
            import torch
            import torch.distributed as dist

            dist.all_reduce(torch.from_numpy(array), group=self.group)
        return array


@dataclass
class CellStatistics:
    """Statistics of every cell, from one pass over the field."""

    nan_count: np.ndarray
    """(cells,) int64: number of NaN times."""
    coefficients: np.ndarray
    """(K, cells) float64: least-squares B of X on C."""
    residual: np.ndarray
    """(cells,) float64: sum over time of (X - C B)^2."""
    scale: np.ndarray
    """(cells,) float64: sum over time of (X - first row)^2, the scale of rounding errors."""


def cell_statistics(
    reader: FieldReader, design: np.ndarray, rows: int, processes: RowProcesses
) -> CellStatistics:
    """Return NaN counts and the regression of every cell on `design` (N, K), in one pass.

    The first row is subtracted before summation to avoid cancellation: the variance of a field
    around 101325 Pa is tiny compared with its mean square.

    Args:
        reader: of the field.
        design: (N, K) regressors.
        rows: number of times per block.
        processes: that share the rows.
    """
    cells, regressors = reader.num_cells, design.shape[1]
    # The shift can only be undone if the design has a constant column.
    shift = np.zeros(cells)
    if regressors and np.ptp(design[:, 0]) == 0:
        shift = np.nan_to_num(reader.read(0, 1)[0].astype(np.float64))
    missing = np.zeros(cells, dtype=np.int64)
    moments = np.zeros((regressors, cells))
    squares = np.zeros(cells)
    with np.errstate(all="ignore"):  # NaN and Inf of masked cells do not affect other columns
        for first, block in reader.blocks(rows, *processes.share(reader.num_times)):
            part = design[first : first + len(block)].T
            missing += np.count_nonzero(np.isnan(block), axis=0)
            for start in range(0, cells, _TILE):
                tile = slice(start, start + _TILE)
                x = block[:, tile] - shift[tile]
                moments[:, tile] += part @ x
                squares[tile] += np.einsum("ij,ij->j", x, x)
        del block
        for array in (missing, moments, squares):
            processes.sum(array)
        coefficients = np.linalg.solve(design.T @ design, moments) if regressors else moments
        residual = np.maximum(squares - np.einsum("ij,ij->j", moments, coefficients), 0.0)
    if regressors:
        coefficients[0] += shift / design[0, 0]
    return CellStatistics(missing, coefficients, residual, squares)


@dataclass
class Anomalies:
    """Matrix A (N, P) of weighted anomalies, read from the field at every use.

    Args:
        reader: of the field.
        cells: (P,) indices of the unmasked cells.
        design: (N, K) regressors C.
        coefficients: (K, P) regression coefficients B at the unmasked cells.
        weights: (P,) column factors w.
        rows: number of times per block.
        processes: that share the rows.
        num_passes: over the data so far.
    """

    reader: FieldReader
    cells: np.ndarray
    design: np.ndarray
    coefficients: np.ndarray
    weights: np.ndarray
    rows: int
    processes: RowProcesses = field(default_factory=RowProcesses)
    num_passes: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (N, P)."""
        return self.reader.num_times, len(self.cells)

    def load(self) -> np.ndarray:
        """Return A itself, float64."""
        matrix = np.empty(self.shape)
        for first, block in self._blocks():
            matrix[first : first + len(block)] = block
            rows = matrix[first : first + len(block)]
            rows -= self.design[first : first + len(block)] @ self.coefficients
        matrix *= self.weights
        self.num_passes += 1
        return matrix

    def project(self, patterns: np.ndarray) -> np.ndarray:
        """Return A Q for Q (P, L): shape (N, L), float64."""
        return self._pass(patterns, back=False)[0]

    def energy(self) -> float:
        """Return the sum of squares of A, from one pass."""
        total = 0.0
        for first, block in self._blocks():
            for start in range(0, len(self.cells), _TILE):
                tile = slice(start, min(start + _TILE, len(self.cells)))
                x = self._tile(block, slice(first, first + len(block)), tile)
                total += float(np.einsum("ij,ij,j->", x, x, self.weights[tile] ** 2))
        self.num_passes += 1
        return float(self.processes.sum(np.array([total]))[0])

    def multiply(self, patterns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return A Q and A' (A Q) for Q (P, L), from one pass: shapes (N, L) and (P, L)."""
        return self._pass(patterns, back=True)

    def _pass(self, patterns: np.ndarray, *, back: bool) -> tuple[np.ndarray, np.ndarray]:
        num_cells, width = patterns.shape
        weighted = patterns * self.weights[:, None]
        forward = np.zeros((self.reader.num_times, width))
        backward = np.zeros((num_cells if back else 0, width))
        tiles = [slice(s, min(s + _TILE, num_cells)) for s in range(0, num_cells, _TILE)]
        for first, block in self._blocks():
            # Groups of 64 rows keep a tile in the cache however large the blocks are.
            for row in range(0, len(block), 64):
                x = block[row : row + 64]
                times = slice(first + row, first + row + len(x))
                y = forward[times]
                for tile in tiles:
                    y += self._tile(x, times, tile) @ weighted[tile]
                if back:
                    for tile in tiles:
                        backward[tile] += self._tile(x, times, tile).T @ y
            del block
        self.num_passes += 1
        self.processes.sum(forward)
        if back:
            self.processes.sum(backward)
            backward *= self.weights[:, None]
        return forward, backward

    def _tile(self, block: np.ndarray, times: slice, tile: slice) -> np.ndarray:
        if self.design.shape[1] == 1:  # a mean alone: no product needed
            return block[:, tile] - self.coefficients[0, tile] * self.design[0, 0]
        return block[:, tile] - self.design[times] @ self.coefficients[:, tile]

    def _blocks(self):
        everything = len(self.cells) == self.reader.num_cells
        share = self.processes.share(self.reader.num_times)
        for first, block in self.reader.blocks(self.rows, *share):
            yield first, block if everything else block[:, self.cells]


@dataclass
class Decomposition:
    """Leading singular values and right singular vectors of A, with error estimates."""

    singular_values: np.ndarray
    """(R,) float64, descending."""
    patterns: np.ndarray
    """(P, R) float64 right singular vectors, orthonormal."""
    error_estimate: np.ndarray
    """(R,) estimated relative error of each singular value."""
    error_bound: np.ndarray
    """(R,) certified relative distance within which A has a singular value."""
    method: str
    num_passes: int

    def leading(self, rank: int) -> Decomposition:
        """Return the first `rank` modes."""
        return replace(
            self,
            singular_values=self.singular_values[:rank],
            patterns=self.patterns[:, :rank],
            error_estimate=self.error_estimate[:rank],
            error_bound=self.error_bound[:rank],
        )


def exact_svd(anomalies: Anomalies, rank_of: Callable[[np.ndarray], int]) -> Decomposition:
    """Return the leading modes of A, loaded into memory, by snapshots or LAPACK.

    The method of snapshots (eigenvectors of the smaller Gram matrix; Sirovich 1987,
    doi:10.1090/qam/910462) is several times faster but squares the condition number. If a
    required mode is too small relative to the first (`_GRAM_SAFE`), LAPACK decomposes A itself.

    Args:
        anomalies: A (N, P).
        rank_of: returns the number of modes to retain, given all singular values.
    """
    matrix = anomalies.load()
    wide = matrix.shape[0] <= matrix.shape[1]
    values, vectors = np.linalg.eigh(matrix @ matrix.T if wide else matrix.T @ matrix)
    values, vectors = np.sqrt(np.maximum(values[::-1], 0.0)), vectors[:, ::-1]
    rank, method = rank_of(values), "snapshots"
    if values[rank - 1] > _GRAM_SAFE * values[0]:
        patterns = vectors[:, :rank]
        if wide:
            patterns = (matrix.T @ patterns) / values[:rank]
    else:
        _, values, rows = np.linalg.svd(matrix, full_matrices=False)
        rank, method = rank_of(values), "lapack"
        patterns = rows[:rank].T
    # Backward stability: errors are a small multiple of rounding relative to the largest value.
    floor = np.finfo(np.float64).eps * max(matrix.shape) * values[0]
    error = floor / np.maximum(values[:rank], floor)
    return Decomposition(values[:rank], patterns, error, error, method, anomalies.num_passes)


def randomized_svd(
    anomalies: Anomalies,
    rank: int,
    *,
    oversampling: int = 10,
    tolerance: float = 1e-4,
    max_passes: int = 12,
    seed: int = 0,
    start: np.ndarray | None = None,
) -> Decomposition:
    """Return the first `rank` modes of A by randomised subspace iteration over its blocks.

    Each pass yields Ritz values s with vectors v = Q w and, from A'A v, their residuals
    r = |A'A v - s^2 v|. Because A'A is symmetric, it has an eigenvalue within r of s^2 (the bound).
    The error of s^2 is about r^2 / gap (Temple; the estimate), and the iteration stops when the
    estimate is below `tolerance` for all `rank` modes. The gap is measured to the last Ritz value
    of the sketch, which is somewhat below the true one, so the estimate can be a few per cent too
    small.

    Args:
        anomalies: A (N, P).
        rank: number of modes, at most min(N, P).
        oversampling: sketch columns in addition to `rank`.
        tolerance: relative error of the singular values at which the iteration stops.
        max_passes: largest number of passes over the data.
        seed: of the random initial subspace.
        start: (P, any) initial patterns, e.g. of a smaller rank; random columns are added.

    Returns:
        The modes; deterministic for a seed and independent of the block size up to rounding.

    Raises:
        NumericalError: `tolerance` was not reached in `max_passes`.

    Source: Halko, Martinsson and Tropp 2011, doi:10.1137/090771806; residual bounds: Parlett,
    The Symmetric Eigenvalue Problem, 1998, sections 4.5 and 11.7.
    """
    width = min(rank + oversampling, *anomalies.shape)
    basis = np.random.default_rng(seed).standard_normal((anomalies.shape[1], width))
    if start is not None:
        basis[:, : min(start.shape[1], width)] = start[:, :width]
    for _ in range(max_passes):
        basis = np.linalg.qr(basis)[0]
        forward, backward = anomalies.multiply(basis)
        values, rotation = _small_svd(forward)
        # Reuse the names: these two arrays are the largest in memory.
        basis, backward = basis @ rotation, backward @ rotation
        bound, estimate = _errors(values, basis, backward, rank)
        if (estimate <= tolerance).all():
            return Decomposition(
                values[:rank], basis[:, :rank], estimate, bound, "randomized", anomalies.num_passes
            )
        basis = backward
    raise NumericalError(
        f"the error of the singular values is {estimate.max():.1e} after {max_passes} passes",
        allowed=f"tolerance {tolerance:.1e}",
        fix="fewer modes, a larger oversampling=, or max_memory= large enough for the exact SVD",
    )


def _small_svd(forward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    upper = np.linalg.qr(forward, mode="r")
    _, values, rows = np.linalg.svd(upper)
    values = np.concatenate([values, np.zeros(len(rows) - len(values))])
    return values, rows.T


def _errors(
    values: np.ndarray, basis: np.ndarray, backward: np.ndarray, rank: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return bound and estimate of the relative errors of the first `rank` Ritz values."""
    squares = values**2
    residual = np.array(
        [np.linalg.norm(backward[:, i] - squares[i] * basis[:, i]) for i in range(rank)]
    )
    # Modes at the rounding level of the first cannot be computed more accurately.
    floor = np.finfo(np.float64).eps * len(basis) ** 0.5 * squares[0] + np.finfo(np.float64).tiny
    residual = np.where(residual <= 1e3 * floor, 0.0, residual)
    size = np.maximum(squares[:rank], floor)
    bound = np.minimum(residual / size, 1.0)
    if len(values) == len(backward):  # the sketch is the whole space
        return bound, np.zeros(rank)
    gap = np.maximum(squares[:rank] - squares[-1], floor)
    temple = residual**2 / gap / size / 2
    return bound, np.minimum(bound, temple)

"""Block of a distributed matrix on one rank, with the row exchanges of a product."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch

from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.ops.spmm import SparseMatrix
from scitoolkit.training.ranks.communicator import RowExchange

Array = np.ndarray


@dataclass(frozen=True)
class ProductLayout:
    """Data of rank (i, j, k) for products with one matrix.

    Attributes:
        grid, rank: the grid and this rank.
        nodes: nodes whose features this rank owns, in local order, shape (n_own,), int64.
        fibre_rows: number of nodes of each rank of the fibre (i, j, .), which exchange slices.
        near: the block's columns owned by the fibre, over rows R_i.
        far: the block's columns received from other ranks, in order of receipt.
        gather: exchange of rows of X with ranks (., j, k).
        reduce: exchange with ranks (i, ., k) whose adjoint direction sums partial results.
        own_rows: position of the fibre's rows in R_i.
        spread_rows: positions in R_i of the rows whose partial sums are sent, in sending order.
    """

    grid: ProcessGrid
    rank: int
    nodes: Array
    fibre_rows: tuple[int, ...]
    near: SparseMatrix
    far: SparseMatrix
    gather: RowExchange
    reduce: RowExchange
    own_rows: slice
    spread_rows: torch.Tensor

    def to(self, device: torch.device) -> ProductLayout:
        """Return the layout for features on a device."""
        names = ("near", "far", "gather", "reduce", "spread_rows")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def nodes_of(owner: Array, size: int) -> list[Array]:
    """Return the nodes of each rank, ascending."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owner, minlength=size))[:-1])


class LayoutBuilder:
    """Builder of the layouts of one matrix for any rank, with shared blocks.

    Args:
        matrix: the whole matrix, shape (N, N), CSR; row = receiver.
        owner: rank of each node, shape (N,).
        grid: the grid of ranks.
        order: permutation of the nodes that gives their local order, shape (N,); None: ascending.
    """

    def __init__(
        self, matrix: sp.csr_matrix, owner: Array, grid: ProcessGrid, order: Array | None = None
    ) -> None:
        # Below, nodes are numbered by their position in the order, except in `ProductLayout.nodes`.
        self._order = np.arange(len(owner)) if order is None else order
        if order is not None:
            matrix, owner = matrix[order][:, order], np.asarray(owner)[order]
            matrix.sort_indices()
        self._matrix, self._grid = matrix, grid
        own = nodes_of(owner, grid.size)
        self._own = own
        self._fibres = {
            (i, j): np.concatenate([own[grid.rank(i, j, k)] for k in range(grid.slices)])
            for i in range(grid.rows)
            for j in range(grid.columns)
        }
        self._blocks: dict[tuple[int, int], sp.csr_matrix] = {}

    def block(self, i: int, j: int) -> sp.csr_matrix:
        """Return A[R_i, C_j], rows by fibres (i, 0..), columns by fibres (0.., j)."""
        if (i, j) not in self._blocks:
            rows = np.concatenate([self._fibres[i, b] for b in range(self._grid.columns)])
            columns = np.concatenate([self._fibres[a, j] for a in range(self._grid.rows)])
            place = np.full(self._matrix.shape[1], -1, np.int64)
            place[columns] = np.arange(len(columns))
            part = self._matrix[rows]
            in_block = place[part.indices] >= 0
            pointer = np.concatenate([[0], np.cumsum(in_block)])[part.indptr]
            # Nonzeros of a row keep their global order, so that all grids sum in the same order.
            self._blocks[i, j] = sp.csr_matrix(
                (part.data[in_block], place[part.indices[in_block]], pointer),
                shape=(len(rows), len(columns)),
            )
        return self._blocks[i, j]

    def _needed_columns(self, i: int, j: int, a: int) -> Array:
        """Return positions in fibre (a, j) of the rows of X that (i, j, .) needs."""
        size = len(self._fibres[a, j])
        if not self._grid.sparse:
            return np.arange(size)
        begin = sum(len(self._fibres[b, j]) for b in range(a))
        columns = np.unique(self.block(i, j).indices)
        return columns[(columns >= begin) & (columns < begin + size)] - begin

    def _partial_rows(self, i: int, j: int, b: int) -> Array:
        """Return positions in fibre (i, b) of the rows with a partial sum on (i, j, .)."""
        size = len(self._fibres[i, b])
        if not self._grid.sparse:
            return np.arange(size)
        begin = sum(len(self._fibres[i, c]) for c in range(b))
        filled = np.flatnonzero(np.diff(self.block(i, j).indptr[begin : begin + size + 1]))
        return filled

    def build(self, rank: int) -> ProductLayout:
        """Return the layout of a rank."""
        grid = self._grid
        i, j, k = grid.place(rank)
        block = self.block(i, j)
        near_begin = sum(len(self._fibres[a, j]) for a in range(i))
        near_end = near_begin + len(self._fibres[i, j])
        near = (block.indices >= near_begin) & (block.indices < near_end)
        far_place = self._far_places(i, j, block.shape[1])
        own_begin = sum(len(self._fibres[i, b]) for b in range(j))
        gather = self._exchange(
            # Sends: what (a, j) needs of row block i. Receives: what this rank needs of row block
            # a.
            [(grid.rank(a, j, k), self._needed_columns(a, j, i)) for a in range(grid.rows)],
            [(grid.rank(a, j, k), self._needed_columns(i, j, a)) for a in range(grid.rows)],
            rank,
        )
        columns = range(grid.columns)
        reduce = self._exchange(
            # The adjoint direction carries partial sums, so that "sends" here are the rows of fibre
            # j for which the others have sums, and "receives" are those for which this rank has
            # sums of the others' rows.
            [(grid.rank(i, b, k), self._partial_rows(i, b, j)) for b in columns],
            [(grid.rank(i, b, k), self._partial_rows(i, j, b)) for b in columns],
            rank,
        )
        return ProductLayout(
            grid,
            rank,
            self._order[self._own[rank]],
            tuple(len(self._own[grid.rank(i, j, piece)]) for piece in range(grid.slices)),
            _part(block, near, block.indices - near_begin, near_end - near_begin),
            _part(block, ~near, far_place[block.indices], gather.rows_received),
            gather,
            reduce,
            slice(own_begin, own_begin + len(self._fibres[i, j])),
            torch.from_numpy(self._spread_places(i, j)),
        )

    def _far_places(self, i: int, j: int, columns: int) -> Array:
        """Return the position of each column of the block in the receive buffer."""
        place = np.zeros(columns, np.int64)
        begin = count = 0
        for a in range(self._grid.rows):
            if a != i:
                needed = self._needed_columns(i, j, a)
                # Rows arrive by sending rank, within a rank in the order of `_needed_columns`,
                # which the sender derives in the same way: no message tells the order.
                place[begin + needed] = count + np.arange(len(needed))
                count += len(needed)
            begin += len(self._fibres[a, j])
        return place

    def _spread_places(self, i: int, j: int) -> Array:
        """Return positions in R_i of the partial sums that are sent, in order of the ranks."""
        out, begin = [np.zeros(0, np.int64)], 0
        for b in range(self._grid.columns):
            if b != j:
                out.append(begin + self._partial_rows(i, j, b))
            begin += len(self._fibres[i, b])
        return np.concatenate(out)

    def _exchange(
        self, sends: list[tuple[int, Array]], receives: list[tuple[int, Array]], rank: int
    ) -> RowExchange:
        sent, received = [0] * self._grid.size, [0] * self._grid.size
        index = [np.zeros(0, np.int64)]
        for other, rows in sends:
            if other != rank:
                sent[other] = len(rows)
                index.append(rows)
        for other, rows in receives:
            if other != rank:
                received[other] = len(rows)
        return RowExchange(torch.from_numpy(np.concatenate(index)), tuple(sent), tuple(received))


def _part(block: sp.csr_matrix, chosen: Array, columns: Array, width: int) -> SparseMatrix:
    pointer = np.concatenate([[0], np.cumsum(chosen)])[block.indptr]
    return SparseMatrix.from_csr(
        pointer, columns[chosen], torch.from_numpy(block.data[chosen]), width
    )

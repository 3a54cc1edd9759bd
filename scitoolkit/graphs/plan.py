"""Communication volume and memory of each algorithm, counted from the graph before running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.layout import LayoutBuilder

Array = np.ndarray


@dataclass(frozen=True)
class Forecast:
    """Predicted costs of one grid, for products of given widths and their gradients.

    Attributes:
        grid: the grid of ranks.
        words: numbers received per epoch, shape (ranks,).
        messages: messages received per epoch, shape (ranks,).
        nonzeros: nonzeros of the local block, shape (ranks,).
        bytes: memory of block, features and buffers, shape (ranks,).
    """

    grid: ProcessGrid
    words: Array
    messages: Array
    nonzeros: Array
    bytes: Array

    @property
    def imbalance(self) -> float:
        """Largest over mean number of nonzeros per rank."""
        return float(self.nonzeros.max() / max(1.0, self.nonzeros.mean()))


def forecast(
    matrix: sp.csr_matrix, owner: Array, grid: ProcessGrid, widths: Sequence[int], gradients: int
) -> Forecast:
    """Predict the costs of a grid by counting the exchanges that training performs.

    Args:
        matrix: the weighted adjacency, shape (N, N).
        owner: rank of each node, shape (N,).
        grid: the grid of ranks.
        widths: columns of each product of a forward pass, in order.
        gradients: number of these products, counted from the last, that have a backward product:
            all, or all but the first if that multiplies the input features.

    Returns:
        Costs per rank for one forward and one backward pass.
    """
    builder = LayoutBuilder(matrix, owner, grid)
    words, messages = np.zeros(grid.size, np.int64), np.zeros(grid.size, np.int64)
    nonzeros, memory = np.zeros(grid.size, np.int64), np.zeros(grid.size, np.int64)
    for rank in range(grid.size):
        layout = builder.build(rank)
        nonzeros[rank] = layout.near.nnz + layout.far.nnz
        for number, width in enumerate(widths):
            passes = [False, True] if number >= len(widths) - gradients else [False]
            for backward in passes:
                counts = _received(layout, width, backward)
                words[rank] += sum(counts)
                messages[rank] += sum(1 for n in counts if n)
        fibre = sum(layout.fibre_rows)
        rows = fibre + layout.gather.rows_received + len(layout.gather.index)
        rows += layout.near.num_rows + len(layout.spread_rows)
        # Per nonzero: index and value, both again for the transpose, and a permutation.
        memory[rank] = 4 * max(widths, default=0) * rows + 28 * nonzeros[rank]
    return Forecast(grid, words, messages, nonzeros, memory)


def _received(layout, width: int, backward: bool) -> list[int]:
    """Return the numbers received in one product, by exchange and sending rank."""
    grid, rank = layout.grid, layout.rank
    k = grid.place(rank)[2]
    widths = grid.slice_widths(width)
    mine, own = widths[k], layout.fibre_rows[k]
    # The backward pass runs each exchange in the other direction: it receives what was sent.
    gather = layout.gather.sent if backward else layout.gather.received
    reduce = layout.reduce.received if backward else layout.reduce.sent
    counts = [n * mine for n in (*gather, *reduce)]
    others = [slice_number for slice_number in range(grid.slices) if slice_number != k]
    counts += [layout.fibre_rows[slice_number] * mine for slice_number in others]
    counts += [own * widths[slice_number] for slice_number in others]
    return counts

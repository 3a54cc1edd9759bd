"""Distributed product A X and its transpose, overlapping communication with local work."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from scitoolkit.graphs.layout import ProductLayout
from scitoolkit.ops.spmm import SparseMatrix
from scitoolkit.ops.spmm.public import product_kernel
from scitoolkit.ops.spmm.reference import spmm as reference_spmm
from scitoolkit.training.ranks.communicator import Communicator, Wait


class Product:
    """Product of a block-distributed matrix with row-distributed features.

    Args:
        layout: this rank's block of the matrix.
        ranks: the communicator; all ranks must call in the same order.
    """

    def __init__(self, layout: ProductLayout, ranks: Communicator) -> None:
        self.layout: ProductLayout = layout
        self.ranks: Communicator = ranks
        self._copies: dict[torch.device, ProductLayout] = {torch.device("cpu"): layout}

    def layout_on(self, device: torch.device) -> ProductLayout:
        """Return the layout on the device of the features."""
        if device not in self._copies:
            self._copies[device] = self.layout.to(device)
        return self._copies[device]

    def __call__(self, x: Tensor) -> Tensor:
        """Return this rank's rows of A X, differentiable in X.

        Args:
            x: features of local nodes, shape (n_own, F).

        Returns:
            Shape (n_own, F).
        """
        return _Product.apply(x, self)

    def forward(self, x: Tensor) -> Tensor:
        """Return A X, without recording a derivative."""
        layout, width = self.layout_on(x.device), x.shape[1]
        x = self._to_slices(x)
        # Rows are on their way while the near columns, whose rows are here, are multiplied.
        far, wait = layout.gather.start(self.ranks, x)
        sums = multiply(layout.near, x)
        wait()
        sums = multiply(layout.far, far, into=sums)
        own = sums[layout.own_rows]
        if layout.grid.columns > 1:
            partial = sums.index_select(0, layout.spread_rows)
            others, wait = layout.reduce.start_back(self.ranks, partial)
            wait()
            own = layout.reduce.add(own.contiguous(), others)
        return self._from_slices(own, width)

    def transposed(self, g: Tensor) -> Tensor:
        """Return A^T G, with the adjoint exchanges."""
        layout, width = self.layout_on(g.device), g.shape[1]
        g = self._to_slices(g)
        if layout.grid.columns > 1:
            rows = g.new_zeros(layout.near.num_rows, g.shape[1])
            others, wait = layout.reduce.start(self.ranks, g)
            rows[layout.own_rows] = g
            wait()
            g = rows.index_copy_(0, layout.spread_rows, others)
        # The far part first: its result travels while the near part is computed. Each exchange of
        # the forward pass runs in the other direction, in the reverse order.
        back, wait = layout.gather.start_back(self.ranks, multiply_transposed(layout.far, g))
        out = multiply_transposed(layout.near, g)
        wait()
        return self._from_slices(layout.gather.add(out, back), width)

    def _to_slices(self, x: Tensor) -> Tensor:
        """Exchange local rows with all columns for the fibre's rows with a slice of columns."""
        grid = self.layout.grid
        if grid.slices == 1:
            return x.contiguous()
        widths, rows = grid.slice_widths(x.shape[1]), self.layout.fibre_rows
        mine = widths[self._slice]
        # An all-to-all within the fibre: n_own rows x all columns become all rows x one slice.
        # Slices are contiguous in the buffer, as the exchange wants what each rank receives in one
        # piece.
        send = torch.cat([part.reshape(-1) for part in x.split(widths, dim=1)])
        receive = x.new_empty(sum(rows) * mine)
        wait = self._swap(send, [len(x) * w for w in widths], receive, [n * mine for n in rows])
        wait()
        return receive.view(sum(rows), mine)

    def _from_slices(self, y: Tensor, width: int) -> Tensor:
        """Invert `_to_slices`."""
        grid = self.layout.grid
        if grid.slices == 1:
            return y
        widths, rows = grid.slice_widths(width), self.layout.fibre_rows
        own, mine = rows[self._slice], widths[self._slice]
        receive = y.new_empty(own * width)
        counts = [own * w for w in widths]
        self._swap(y.reshape(-1), [n * mine for n in rows], receive, counts)()
        parts = receive.split(counts)
        return torch.cat([p.view(own, w) for p, w in zip(parts, widths, strict=True)], dim=1)

    @property
    def _slice(self) -> int:
        return self.layout.grid.place(self.layout.rank)[2]

    def _swap(self, send: Tensor, sent: list[int], receive: Tensor, received: list[int]) -> Wait:
        grid = self.layout.grid
        # Ranks of a fibre are consecutive, see `Grid.rank`; all others exchange nothing.
        first = self.layout.rank - self._slice
        before, after = [0] * first, [0] * (grid.size - first - grid.slices)
        return self.ranks.start(send, before + sent + after, receive, before + received + after)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, product):
        ctx.product = product
        return product.forward(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return ctx.product.transposed(g), None


def multiply(matrix: SparseMatrix, x: Tensor, into: Tensor | None = None) -> Tensor:
    """Return A X, added to `into` if given; no derivative is recorded."""
    run = product_kernel(x)
    if run is not None:
        return run(matrix.pointer, matrix.column, _value(matrix, x), x, into=into)
    out = reference_spmm(matrix.rows, matrix.column, _value(matrix, x), x, matrix.num_rows)
    return out if into is None else into + out


def multiply_transposed(matrix: SparseMatrix, g: Tensor, into: Tensor | None = None) -> Tensor:
    """Return A^T G, added to `into` if given; no derivative is recorded."""
    pointer, column, value = matrix.transposed_csr
    value = None if value is None else value.to(g.dtype)
    g = g.contiguous()
    run = product_kernel(g)
    if run is not None:
        return run(pointer, column, value, g, into=into)
    columns = torch.arange(matrix.num_columns, device=g.device)
    rows = torch.repeat_interleave(columns, pointer.diff(), output_size=matrix.nnz)
    out = reference_spmm(rows, column, value, g, matrix.num_columns)
    return out if into is None else into + out


def _value(matrix: SparseMatrix, like: Tensor) -> Tensor | None:
    return None if matrix.value is None else matrix.value.to(like.dtype)

"""What the kernels compute, in plain torch."""

from __future__ import annotations

from torch import Tensor


def spmm(rows: Tensor, column: Tensor, value: Tensor | None, x: Tensor, num_rows: int) -> Tensor:
    """Return y with y[i] = sum over nonzeros e of row i of value[e] * x[column[e]].

    Args:
        rows, column: place of each nonzero, shape (nnz,).
        value: shape (nnz,), or None for ones.
        x: shape (columns, width).
        num_rows: rows of the matrix.

    Example:
        >>> import torch
        >>> spmm(torch.tensor([0, 0]), torch.tensor([1, 0]), None, torch.eye(2), 2).tolist()
        [[1.0, 1.0], [0.0, 0.0]]
    """
    messages = x[column.long()]
    if value is not None:
        messages = messages * value[:, None]
    return x.new_zeros(num_rows, x.shape[1]).index_add(0, rows, messages)


def sddmm(rows: Tensor, column: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return for each nonzero the inner product of its row of `left` and column's of `right`."""
    return (left[rows] * right[column.long()]).sum(1)

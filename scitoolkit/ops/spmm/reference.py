"""Reference implementations of the sparse products in plain torch."""

from __future__ import annotations

from torch import Tensor


def spmm(rows: Tensor, column: Tensor, value: Tensor | None, x: Tensor, num_rows: int) -> Tensor:
    """Return y[i] = sum of value[e] x[column[e]] over the nonzeros e of row i.

    Args:
        rows, column: indices of each nonzero, shape (nnz,).
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
    """Return <left[rows[e]], right[column[e]]> for each nonzero e, shape (nnz,)."""
    return (left[rows] * right[column.long()]).sum(1)

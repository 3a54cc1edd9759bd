"""Reference implementations of graph attention in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def attention(
    rows: Tensor, column: Tensor, left: Tensor, right: Tensor, x: Tensor, slope: float
) -> Tensor:
    """Return y[i, h] = sum of a[e, h] x[column[e], h] over the nonzeros e of row i.

    The weights a[e, h] of a row are the softmax of LeakyReLU(left[i, h] + right[column[e], h]).

    Args:
        rows, column: indices of each nonzero, shape (nnz,).
        left: shape (rows, heads).
        right: shape (columns, heads).
        x: shape (columns, heads, width).
        slope: slope of LeakyReLU below 0.

    Example:
        >>> import torch
        >>> none, x = torch.zeros(2, 1), torch.tensor([[[1.0]], [[3.0]]])
        >>> index = torch.tensor([0, 0]), torch.tensor([1, 0])
        >>> attention(*index, none, none, x, 0.2).flatten().tolist()
        [2.0, 0.0]
    """
    scores = nn.functional.leaky_relu(left[rows] + right[column.long()], slope)
    return _averages(rows, column, scores, x, len(left))


def additive(
    rows: Tensor, column: Tensor, left: Tensor, x: Tensor, vector: Tensor, slope: float
) -> Tensor:
    """Return the same averages for scores <vector[h], LeakyReLU(left[i, h] + x[column[e], h])>.

    Args:
        rows, column: indices of each nonzero, shape (nnz,).
        left: shape (rows, heads, width).
        x: shape (columns, heads, width).
        vector: shape (heads, width).
        slope: slope of LeakyReLU below 0.
    """
    both = nn.functional.leaky_relu(left[rows] + x[column.long()], slope)
    return _averages(rows, column, (both * vector).sum(2), x, len(left))


def _averages(rows: Tensor, column: Tensor, scores: Tensor, x: Tensor, num_rows: int) -> Tensor:
    places = rows[:, None].expand_as(scores)
    largest = scores.detach().new_zeros(num_rows, scores.shape[1])
    largest = largest.scatter_reduce(0, places, scores.detach(), "amax", include_self=False)
    weight = (scores - largest[rows]).exp()
    total = torch.zeros_like(largest).index_add(0, rows, weight)
    weight = weight / total[rows]
    out = x.new_zeros(num_rows, *x.shape[1:])
    return out.index_add(0, rows, weight[:, :, None] * x[column.long()])

"""Padding of periodic dims."""

from __future__ import annotations

import torch
from torch import Tensor


def wrapped(x: Tensor, dim: int, width: int) -> Tensor:
    """Return a tensor padded by `width` entries of its other end, on both ends of a dim.

    Args:
        x: of any shape.
        dim: periodic.
        width: may exceed the size of the dim, which is then repeated.

    Example:
        >>> wrapped(torch.arange(3), 0, 1).tolist(), wrapped(torch.arange(2), 0, 3).tolist()
        ([2, 0, 1, 2, 0], [1, 0, 1, 0, 1, 0, 1, 0])
    """
    if width == 0:
        return x
    size = x.shape[dim]
    # Whole periods, then a part of one: slices, which exports record, instead of an index.
    repeats = -(-width // size)
    part = width - (repeats - 1) * size
    before = [x.narrow(dim, size - part, part), *[x] * (repeats - 1)]
    after = [*[x] * (repeats - 1), x.narrow(dim, 0, part)]
    return torch.cat([*before, x, *after], dim)

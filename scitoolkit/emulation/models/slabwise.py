"""A few convolutions applied slab by slab, in the memory of a slab: the last stage of large fields.

At full resolution a network's channels outweigh everything else it holds; they are local, and
needed in no later layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scitoolkit.emulation.models.padding import AnyPadding as Padding
from scitoolkit.emulation.models.padding import SharedDim

THICKNESS = {1: 1 << 16, 2: 256, 3: 32}
"""Cells of a slab, by the number of space dims."""

FEWEST = 4
"""Slabs below which the whole field is one: halos would cost more than a tenth of the work."""


def slabwise(
    stage: Callable[..., Tensor], fields: Sequence[Tensor], reach: int, padding: Sequence[Padding]
) -> Tensor:
    """Return `stage(*fields)`; without gradients, of large fields slab by slab.

    Whether and where fields are cut depends on dims that no other process has a share in, so that
    all processes of a divided field exchange the same halos.

    Args:
        stage: convolutions of stride 1 with this padding, and what acts in every cell by itself.
        fields: (B, C, *space) each, on one grid.
        reach: cells that the stage looks far along a dim.
        padding: one entry per space dim.

    Returns:
        (B, C, *space), what the stage returns of the whole fields.

    Example:
        >>> x = torch.arange(4.0).view(1, 1, 4)
        >>> slabwise(lambda a: a + 1, [x], 0, ["circular"]).flatten().tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    dim = None if torch.is_grad_enabled() else cut_dim(fields[0].shape[2:], padding)
    if dim is None or torch.compiler.is_compiling():
        return stage(*fields)
    size, thickness = fields[0].shape[dim], THICKNESS[len(padding)]
    wraps = padding[dim - 2] == "circular"
    whole: Tensor | None = None
    for begin in range(0, size, thickness):
        end = min(begin + thickness, size)
        # What the stage makes of a slab's own ends is wrong as far as it reaches, and cut off;
        # at a wall these ends are the field's.
        before = reach if wraps else min(reach, begin)
        after = reach if wraps else min(reach, size - end)
        part = stage(*(_cells(x, dim, begin - before, end + after) for x in fields))
        part = part.narrow(dim, before, end - begin)
        if whole is None:
            shape = list(part.shape)
            shape[dim] = size
            whole = part.new_empty(shape)
        whole.narrow(dim, begin, end - begin).copy_(part)
    assert whole is not None
    return whole


def cut_dim(space: Sequence[int], padding: Sequence[Padding]) -> int | None:
    """Return the dim of (B, C, *space) along which a field is cut; None where it stays whole.

    Example:
        >>> cut_dim([64, 512, 256], ["circular"] * 3), cut_dim([64, 64, 64], ["circular"] * 3)
        (3, None)
    """
    own = [i for i, p in enumerate(padding) if not isinstance(p, SharedDim)]
    longest = max(own, key=lambda i: space[i], default=None)
    if longest is None or space[longest] < FEWEST * THICKNESS[len(padding)]:
        return None
    return longest + 2


def _cells(x: Tensor, dim: int, begin: int, end: int) -> Tensor:
    """Return cells of a dim; those beyond its ends are of the other end."""
    size = x.shape[dim]
    parts = [x.narrow(dim, max(begin, 0), min(end, size) - max(begin, 0))]
    if begin < 0:
        parts.insert(0, x.narrow(dim, size + begin, -begin))
    if end > size:
        parts.append(x.narrow(dim, 0, end - size))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)

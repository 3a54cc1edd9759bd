"""Convolutions applied slab by slab, to limit the memory of the first and last stage of a network.

The channels at full resolution dominate the memory of a network; these stages use them locally, and
no other layer needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scitoolkit.emulation.models.padding import AnyPadding as Padding
from scitoolkit.emulation.models.padding import PoleDim, SharedDim

THICKNESS = {1: 1 << 16, 2: 256, 3: 32}
"""Thickness of a slab in cells, by number of space dims."""

FEWEST = 4
"""Least number of slabs; with fewer, halos would cost more than a tenth of the work."""


def slabwise(
    stage: Callable[..., Tensor],
    fields: Sequence[Tensor],
    reach: int,
    padding: Sequence[Padding],
    *,
    cells: int = 1,
    cells_out: int = 1,
) -> Tensor:
    """Return `stage(*fields)`, computed slab by slab for large fields without gradients.

    Fields are cut along a dim that is not divided among processes, so that all processes of a
    divided field exchange the same halos.

    Args:
        stage: convolutions of stride 1 with this padding, and pointwise operations.
        fields: (B, C, *space) each, on one grid.
        reach: cells on each side, of the grid of the convolutions, that an output depends on.
        padding: one entry per space dim.
        cells: cells of the fields along every dim in a cell of that grid; they divide the fields.
        cells_out: cells of the output along every dim in a cell of that grid.

    Returns:
        (B, C, *space), equal to the stage applied to the whole fields.

    Example:
        >>> x = torch.arange(4.0).view(1, 1, 4)
        >>> slabwise(lambda a: a + 1, [x], 0, ["circular"]).flatten().tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    space = [n // cells for n in fields[0].shape[2:]]
    dim = None if torch.is_grad_enabled() else cut_dim(space, padding)
    if dim is None or torch.compiler.is_compiling():
        return stage(*fields)
    size, thickness = space[dim - 2], THICKNESS[len(padding)]
    wraps = padding[dim - 2] == "circular"
    whole: Tensor | None = None
    for begin in range(0, size, thickness):
        end = min(begin + thickness, size)
        # Outputs within `reach` of the ends of a slab are wrong and cut off; at a wall the ends of
        # the slab are those of the field.
        before = reach if wraps else min(reach, begin)
        after = reach if wraps else min(reach, size - end)
        first, last = cells * (begin - before), cells * (end + after)
        part = stage(*(_cells(x, dim, first, last) for x in fields))
        part = part.narrow(dim, cells_out * before, cells_out * (end - begin))
        if whole is None:
            shape = list(part.shape)
            shape[dim] = cells_out * size
            whole = part.new_empty(shape)
        whole.narrow(dim, cells_out * begin, part.shape[dim]).copy_(part)
        del part  # before the next is made
    assert whole is not None
    return whole


def cut_dim(space: Sequence[int], padding: Sequence[Padding]) -> int | None:
    """Return the dim of (B, C, *space) along which a field is cut; None if it is not cut.

    Example:
        >>> cut_dim([64, 512, 256], ["circular"] * 3), cut_dim([64, 64, 64], ["circular"] * 3)
        (3, None)
    """
    own = [i for i, p in enumerate(padding) if not isinstance(p, SharedDim)]
    # Cells beyond a pole are far away along the longitude.
    poles = {i: p.around - 2 for i, p in enumerate(padding) if isinstance(p, PoleDim)}
    own = [i for i in own if i not in {*poles, *poles.values()}]
    longest = max(own, key=lambda i: space[i], default=None)
    if longest is None or space[longest] < FEWEST * THICKNESS[len(padding)]:
        return None
    return longest + 2


def _cells(x: Tensor, dim: int, begin: int, end: int) -> Tensor:
    """Return cells `begin` to `end` of a dim, wrapped around its ends."""
    size = x.shape[dim]
    parts = [x.narrow(dim, max(begin, 0), min(end, size) - max(begin, 0))]
    if begin < 0:
        parts.insert(0, x.narrow(dim, size + begin, -begin))
    if end > size:
        parts.append(x.narrow(dim, 0, end - size))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)

"""Arrays with borders of one value."""

from __future__ import annotations

from collections.abc import Sequence

from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.values import Expr, View, memory_order


def padded(builder: Builder, x: View, pads: Sequence[tuple[int, int]], fill: str) -> View:
    """Return an array with borders, in the memory order of x.

    Args:
        builder: the program.
        x: the array.
        pads: cells to add at both ends of each dim; negative numbers remove cells.
        fill: C text of the value of the borders.
    """
    for dim, (low, high) in enumerate(pads):
        if low < 0 or high < 0:
            x = x.take(dim, range(max(-low, 0), x.shape[dim] + min(high, 0)))
    added = [(max(low, 0), max(high, 0)) for low, high in pads]
    if not any(any(pair) for pair in added):
        return x
    shape = tuple(n + low + high for n, (low, high) in zip(x.shape, added, strict=True))
    into = builder.new(shape, x.dtype, memory_order(x))
    builder.store(Expr(fill, (), shape, x.dtype), into)
    inner = into
    for dim, ((low, _), size) in enumerate(zip(added, x.shape, strict=True)):
        inner = inner.take(dim, range(low, low + size))
    builder.store(x, inner)
    return into

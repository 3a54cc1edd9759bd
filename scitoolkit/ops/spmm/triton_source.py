"""Generator of the Triton kernels of the product and the sampled product for one width.

The product is a reduction over each row's nonzeros (`codegen/triton_segments.py`), with or without
values, stored or added to its output. The sampled product has one program per tile of nonzeros.
"""

from __future__ import annotations

from scitoolkit.ops.codegen import triton_segments
from scitoolkit.ops.codegen.triton_segments import HEAD, Reduction, Tiles

LANES = 128  # maximum number of columns per program

SAMPLED = """

@triton.jit(do_not_specialize=["nnz"])
def sampled(nnz, rows, column, LEFT, RIGHT, OUT):
    e = tl.program_id(0).to(tl.int64) * {count} + tl.arange(0, {count})
    inside = e < nnz
    i = tl.load(rows + e, mask=inside, other=0)
    j = tl.load(column + e, mask=inside, other=0).to(tl.int64)
    total = tl.zeros([{count}, {lanes}], LEFT.dtype.element_ty)
    for first in range(0, {width}, {lanes}):
        w = first + tl.arange(0, {lanes})
        mask = inside[:, None] & (w < {width})[None, :]
        left = tl.load(LEFT + i[:, None] * {width} + w[None, :], mask=mask, other=0.0)
        right = tl.load(RIGHT + j[:, None] * {width} + w[None, :], mask=mask, other=0.0)
        total += left * right
    tl.store(OUT + e, tl.sum(total, 1), mask=inside)
"""


def tiles_of(width: int) -> Tiles:
    """Return the partition of rows of a width into programs."""
    return Tiles(1, width, LANES, triton_segments.CHUNK)


def product_name(*, weighted: bool, into: bool) -> str:
    """Return the name of a variant of the product's kernel."""
    return f"product{'_weighted' if weighted else ''}{'_into' if into else ''}"


def generate(tiles: Tiles) -> str:
    """Return the Triton source of the products and of the sampled product.

    Example:
        >>> "def product_weighted_into(pointer" in generate(tiles_of(16))
        True
    """
    x = tiles.rows_of("X", "j")
    value = "a = tl.load(VALUE + e, mask=inside, other=0.0)"
    text = HEAD
    for into in (False, True):
        ones = product_name(weighted=False, into=into)
        text += triton_segments.generate(Reduction(ones, ("X",), (), {"OUT": x}, into=into), tiles)
        weighted = product_name(weighted=True, into=into)
        text += triton_segments.generate(
            Reduction(weighted, ("X", "VALUE"), (value,), {"OUT": f"a[:, None] * {x}"}, into=into),
            tiles,
        )
    return text + SAMPLED.format(count=tiles.nonzeros, lanes=tiles.lanes, width=tiles.width)

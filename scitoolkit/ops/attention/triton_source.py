"""Generator of the Triton kernels of both kinds of attention, for `<heads>x<width>`.

They are reductions over the nonzeros of rows, or of columns for gradients of columns
(`codegen/triton_segments.py`). A program computes one head of one row. Scores, weights and their
derivatives are computed for a tile of nonzeros at a time and are not stored.
"""

from __future__ import annotations

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import triton_segments
from scitoolkit.ops.codegen.triton_segments import HEAD, Reduction, Tiles

MAX_WIDTH = 1024  # of a head, which one program holds in registers

SLOPE = "slope = tl.load(SLOPE)"
LEAKY = "tl.where({0} > 0, {0}, slope * {0})"
STEEP = "tl.where({0} > 0, 1.0, slope)"


def tiles_of(spec: str) -> Tiles:
    """Return the partition of rows of `<heads>x<width>` into programs.

    Raises:
        BackendError: heads that are too wide.
    """
    heads, width = map(int, spec.split("x"))
    if width > MAX_WIDTH:
        raise BackendError(
            f"no GPU kernel for heads of {width} columns", allowed=f"at most {MAX_WIDTH}"
        )
    return Tiles(heads, width, MAX_WIDTH, triton_segments.CHUNK)


def generate(tiles: Tiles) -> str:
    """Return the Triton source of graph attention (GAT), with scores left + right.

    The outputs of `forward` are the logarithm of the sum of exp(score), the weighted average of the
    rows, its part from positive scores, and the weight of the positive scores. torch computes the
    derivative with respect to `left` from the last two, see `attention/cpu.py`.

    Example:
        >>> "def columns(pointer, column," in generate(tiles_of("2x8"))
        True
    """
    x = tiles.rows_of("X", "j")
    forward = Reduction(
        "forward",
        ("X", "LEFT", "RIGHT", "SLOPE"),
        row=(SLOPE, f"left = tl.load(LEFT + i * {tiles.heads} + h)"),
        tile=(
            f"s = left + {tiles.numbers_of('RIGHT', 'j')}",
            f"score = {LEAKY.format('s')}",
            f"x = {x}",
        ),
        score="score",
        rows={"OUT": "x", "POSITIVE": "tl.where((s > 0)[:, None], x, 0.0)"},
        numbers={"SHARE": "tl.where(s > 0, 1.0, 0.0)"},
    )
    columns = Reduction(
        "columns",
        ("X", "RIGHT", "LEFT", "NORM", "MEAN", "GRAD", "SLOPE"),
        row=(
            SLOPE,
            f"right = tl.load(RIGHT + i * {tiles.heads} + h)",
            f"x = {tiles.row_of('X', 'i')}",
        ),
        tile=(
            f"s = right + {tiles.numbers_of('LEFT', 'j')}",
            f"g = {tiles.rows_of('GRAD', 'j')}",
            *_weigh(tiles, LEAKY.format("s"), "j", "g * x[None, :]"),
        ),
        rows={"BY_X": "weight[:, None] * g"},
        numbers={"BY_RIGHT": f"change * {STEEP.format('s')}"},
    )
    return HEAD + "".join(triton_segments.generate(sums, tiles) for sums in (forward, columns))


def generate_additive(tiles: Tiles) -> str:
    """Return the Triton source of additive attention (GATv2).

    `rows` computes the derivative with respect to `left`, and each row's contribution to that with
    respect to the vector.

    Example:
        >>> "def rows_pieces(pointer, ends, column," in generate_additive(tiles_of("2x8"))
        True
    """
    x, vector = tiles.rows_of("X", "j"), "vector = tl.load(VECTOR + w, mask=valid, other=0.0)"
    left = f"left = {tiles.row_of('LEFT', 'i')}"
    score = ("active = " + LEAKY.format("t"), "score = tl.sum(vector[None, :] * active, 1)")
    forward = Reduction(
        "forward",
        ("X", "LEFT", "VECTOR", "SLOPE"),
        row=(SLOPE, vector, left),
        tile=(f"x = {x}", "t = left[None, :] + x", *score),
        score="score",
        rows={"OUT": "x"},
    )
    rows = Reduction(
        "rows",
        ("X", "LEFT", "VECTOR", "NORM", "MEAN", "GRAD", "SLOPE"),
        row=(SLOPE, vector, left, f"g = {tiles.row_of('GRAD', 'i')}"),
        tile=(
            f"x = {x}",
            "t = left[None, :] + x",
            *score,
            *_weigh(tiles, "score", "i", "g[None, :] * x"),
        ),
        rows={
            "BY_LEFT": f"change[:, None] * vector[None, :] * {STEEP.format('t')}",
            "BY_VECTOR": "change[:, None] * active",
        },
    )
    columns = Reduction(
        "columns",
        ("X", "LEFT", "VECTOR", "NORM", "MEAN", "GRAD", "SLOPE"),
        row=(SLOPE, vector, f"x = {tiles.row_of('X', 'i')}"),
        tile=(
            f"t = {tiles.rows_of('LEFT', 'j')} + x[None, :]",
            *score,
            f"g = {tiles.rows_of('GRAD', 'j')}",
            *_weigh(tiles, "score", "j", "g * x[None, :]"),
        ),
        rows={
            "BY_X": f"weight[:, None] * g + change[:, None] * vector[None, :] * {STEEP.format('t')}"
        },
    )
    reductions = (forward, rows, columns)
    return HEAD + "".join(triton_segments.generate(one, tiles) for one in reductions)


def _weigh(tiles: Tiles, score: str, row: str, products: str) -> tuple[str, ...]:
    """Return lines that compute the weights of nonzeros and the derivatives by their scores."""
    norm, mean = (
        tiles.numbers_of(name, "j") if row == "j" else f"tl.load({name} + i * {tiles.heads} + h)"
        for name in ("NORM", "MEAN")
    )
    return (
        f'weight = tl.exp(tl.where(inside, {score} - {norm}, float("-inf")))',
        f"change = weight * (tl.sum({products}, 1) - {mean})",
    )

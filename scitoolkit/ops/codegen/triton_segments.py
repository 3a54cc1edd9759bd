"""Generator of Triton kernels that reduce over the nonzeros of each row of a CSR pattern.

A program computes a block of columns (or a head) of one row and loops over tiles of the row's
nonzeros. To balance the load, rows with more than `CHUNK` nonzeros are split: all nonzeros are cut
into chunks of that size with one program each, and the program of the row merges the partial
results. A chunk overlaps at most two such rows, so no counting is needed: piece 0 belongs to the
row in which the chunk begins, piece 1 to a row that begins inside the chunk. There are no atomics,
so results are bit-identical from call to call.

A reduction is a sum, or an average weighted by the softmax of scores. The average of a long row is
the average of its pieces' averages, where the score of a piece is the logarithm of its sum of
exp(score).

A sum in float32 carries what each addition rounds off, and its few partial results are float64.
Without that, a node whose neighbours have nearly equal features is off by one rounding per tile,
all in the same direction: 2e-6 of the sum for 1,000 neighbours, against 1e-7 with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType

import torch
from torch import Tensor

from scitoolkit.ops.codegen.derived_index import DerivedIndex
from scitoolkit.ops.codegen.gpu import on_device

CHUNK = 1024  # nonzeros per program of rows that have more
TILE = 512  # target number of elements of a tile
PER_WARP = 256  # elements of a tile per warp

# Knuth's sum of two numbers and its exact rounding error (The Art of Computer Programming, vol. 2,
# 4.2.2, theorem B). Where the sum overflows the error is NaN, and the sum alone is the result.
HEAD = """
import triton
import triton.language as tl


@triton.jit
def plus(total, lost, term):
    if total.dtype == tl.float32:
        after = total + term
        back = after - total
        lost += (total - (after - back)) + (term - back)
        return after, lost
    else:
        return total + term, lost


@triton.jit
def both(total, lost):
    wide = total.to(tl.float64)
    return tl.sum(tl.where(lost == lost, wide + lost, wide), 0)
"""


@dataclass(frozen=True)
class Tiles:
    """Partition of rows of `heads` x `width` elements into programs and tiles.

    Attributes:
        heads: heads per row; each has separate programs.
        width: elements of a head.
        limit: maximum number of lanes of a program; a wider head is cut into blocks.
        chunk: nonzeros per piece of a long row.

    Example:
        >>> Tiles(1, 300, limit=128, chunk=1024).blocks, Tiles(2, 24, 1024, 1024).lanes
        (3, 32)
    """

    heads: int
    width: int
    limit: int
    chunk: int

    @property
    def lanes(self) -> int:
        """Elements of a row per program, a power of two."""
        return min(1 << (self.width - 1).bit_length(), self.limit)

    @property
    def blocks(self) -> int:
        """Blocks of lanes per head."""
        return -(-self.width // self.lanes)

    @property
    def nonzeros(self) -> int:
        """Nonzeros per tile."""
        return min(max(TILE // self.lanes, 4), 32)

    @property
    def warps(self) -> int:
        """Warps per program."""
        return max(self.nonzeros * self.lanes // PER_WARP, 1)

    @property
    def row(self) -> int:
        """Elements of a row."""
        return self.heads * self.width

    def begin(self) -> list[str]:
        """Return lines that assign the head `h`, the lanes' columns `w` and their mask `valid`."""
        return [
            f"h = tl.program_id(1) // {self.blocks}",
            f"block = tl.program_id(1) % {self.blocks}",
            f"lane = block * {self.lanes} + tl.arange(0, {self.lanes})",
            f"valid = lane < {self.width}",
            f"w = h * {self.width} + lane",
        ]

    def row_of(self, name: str, index: str) -> str:
        """Return the expression that loads the lanes of one row of an array."""
        return f"tl.load({name} + {index} * {self.row} + w, mask=valid, other=0.0)"

    def rows_of(self, name: str, index: str) -> str:
        """Return the expression that loads the lanes of a tile of rows, zero outside `inside`."""
        mask = "inside[:, None] & valid[None, :]"
        return (
            f"tl.load({name} + {index}[:, None] * {self.row} + w[None, :], mask={mask}, other=0.0)"
        )

    def numbers_of(self, name: str, index: str) -> str:
        """Return the expression that loads the head's element of each row of a tile."""
        return f"tl.load({name} + {index} * {self.heads} + h, mask=inside, other=0.0)"


@dataclass(frozen=True)
class Reduction:
    """A reduction over the nonzeros of each row.

    Attributes:
        name: name of the kernel.
        inputs: names of the input arrays; the dtype is that of X.
        row: lines executed for a row `i` and head `h`.
        tile: lines executed for a tile of nonzeros `e` in columns `j`, with the mask `inside`.
        rows: outputs with one element per lane: name and the tile's term.
        numbers: outputs with one element per head: name and the tile's term.
        score: a name assigned in `tile`. If set, terms are averaged with the softmax of the score,
            and the first output is the logarithm of the sum of exp(score), 0 for an empty row.
        into: add the sums to the outputs' previous values.
    """

    name: str
    inputs: tuple[str, ...]
    tile: tuple[str, ...]
    rows: dict[str, str]
    row: tuple[str, ...] = ()
    numbers: dict[str, str] = field(default_factory=dict)
    score: str = ""
    into: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        return (*(["NORM"] if self.score else []), *self.rows, *self.numbers)


def generate(reduction: Reduction, tiles: Tiles) -> str:
    """Return the Triton source of a reduction's kernels, without the imports in `HEAD`.

    Example:
        >>> tile = ("a = tl.load(A + e, mask=inside, other=0.0)",)
        >>> count = Reduction("count", ("X", "A"), tile, {}, numbers={"OUT": "a"})
        >>> "def count_pieces(pointer, ends, column," in generate(count, Tiles(1, 1, 128, 1024))
        True
    """
    parts = tuple(f"PART_{output}" for output in reduction.outputs)
    inputs = ", ".join(reduction.inputs)
    sums = ", ".join(output.lower() for output in reduction.outputs)
    bounds = ["begin = tl.load(pointer + i)", "end = tl.load(pointer + i + 1)"]
    of_nonzeros = f"{sums} = {reduction.name}_of(i, begin, end, column, {inputs})"
    of_pieces = f"{sums} = {reduction.name}_merged(begin, end, X, {', '.join(parts)})"
    store_piece = _stores(reduction, tiles, parts, "place", into=False)
    piece = [
        "k = tl.program_id(0).to(tl.int64)",
        "side = tl.program_id(2)",
        "place = 2 * k + side",
        *tiles.begin(),
        "i = tl.load(ends + place)",
        *bounds,
        f"start = k * {tiles.chunk}",
        f"if (end - begin > {tiles.chunk}) & ((side == 0) | (begin > start)):",
        "    begin = tl.maximum(begin, start)",
        f"    end = tl.minimum(end, start + {tiles.chunk})",
        f"    {of_nonzeros}",
        *("    " + line for line in store_piece),
    ]
    whole = [
        "i = tl.program_id(0).to(tl.int64)",
        *tiles.begin(),
        *bounds,
        f"if end - begin > {tiles.chunk}:",
        f"    {of_pieces}",
        "else:",
        f"    {of_nonzeros}",
        *_stores(reduction, tiles, reduction.outputs, "i", into=reduction.into),
    ]
    every = (*parts, *reduction.outputs)
    return (
        _function(f"{reduction.name}_of", f"i, begin, end, column, {inputs}", _of(reduction, tiles))
        + _function(
            f"{reduction.name}_merged",
            f"begin, end, X, {', '.join(parts)}",
            _merged(reduction, tiles, parts),
        )
        + _function(
            f"{reduction.name}_pieces",
            f"pointer, ends, column, {inputs}, {', '.join(parts)}",
            piece,
        )
        + _function(reduction.name, f"pointer, column, {inputs}, {', '.join(every)}", whole)
    )


def run(
    module: ModuleType,
    name: str,
    tiles: Tiles,
    pointer: Tensor,
    column: Tensor,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> None:
    """Launch a reduction's kernels.

    Args:
        module: module of the source from `generate`.
        name: name of the reduction.
        tiles: the argument of `generate`.
        pointer, column: CSR pattern.
        inputs: contiguous arrays in the order of `Reduction.inputs`.
        outputs: written; in the order of `Reduction.outputs`, one row per row of the pattern.
    """
    rows, nonzeros = pointer.shape[0] - 1, column.shape[0]
    if not rows:
        return
    chunks = -(-nonzeros // tiles.chunk) if nonzeros > tiles.chunk else 0
    parts = [
        output.new_empty(2 * chunks, *output.shape[1:], dtype=torch.float64) for output in outputs
    ]
    options = {"num_warps": tiles.warps, "enable_fp_fusion": True}
    programs = tiles.heads * tiles.blocks
    with on_device(column):
        if chunks:
            ends = _derived_ends(pointer, nonzeros, tiles.chunk)
            getattr(module, f"{name}_pieces")[(chunks, programs, 2)](
                pointer, ends, column, *inputs, *parts, **options
            )
        getattr(module, name)[(rows, programs)](
            pointer, column, *inputs, *parts, *outputs, **options
        )


def _ends(pointer: Tensor, nonzeros: int, chunk: int) -> Tensor:
    """Return the row of the first and of the last nonzero of each chunk, shape (chunks, 2)."""
    starts = torch.arange(0, nonzeros, chunk, device=pointer.device)
    ends = torch.stack([starts, (starts + chunk - 1).clamp_max(nonzeros - 1)], 1)
    return torch.searchsorted(pointer, ends, right=True) - 1


_derived_ends = DerivedIndex(_ends)


def _function(name: str, arguments: str, lines: Sequence[str]) -> str:
    body = "\n".join("    " + line for line in lines)
    return f"\n\n@triton.jit\ndef {name}({arguments}):\n{body}\n"


def _of(reduction: Reduction, tiles: Tiles) -> list[str]:
    """Return the lines of the reduction over nonzeros begin to end of row i."""
    count = tiles.nonzeros
    return [
        *tiles.begin(),
        *reduction.row,
        *_zeros(reduction, tiles, "X.dtype.element_ty"),
        f"for first in range(begin, end, {count}):",
        f"    e = first + tl.arange(0, {count})",
        "    inside = e < end",
        "    j = tl.load(column + e, mask=inside, other=0).to(tl.int64)",
        *("    " + line for line in reduction.tile),
        *("    " + line for line in _add(reduction, reduction.rows, reduction.numbers)),
        *_finish(reduction),
    ]


def _merged(reduction: Reduction, tiles: Tiles, parts: tuple[str, ...]) -> list[str]:
    """Return the lines of the same reduction over the pieces of a long row."""
    count = tiles.nonzeros
    part = dict(zip(reduction.outputs, parts, strict=True))
    real = "X.dtype.element_ty" if reduction.score else "tl.float64"
    to = f".to({real})"
    rows = {row: tiles.rows_of(part[row], "place") + to for row in reduction.rows}
    numbers = {o: tiles.numbers_of(part[o], "place") + to for o in reduction.numbers}
    lines = _add(reduction, rows, numbers)
    if reduction.score:
        lines.insert(0, f"{reduction.score} = {tiles.numbers_of(part['NORM'], 'place')}{to}")
    return [
        *tiles.begin(),
        *_zeros(reduction, tiles, real),
        f"stop = (end - 1) // {tiles.chunk} + 1",
        f"for first in range(begin // {tiles.chunk}, stop, {count}):",
        f"    k = first + tl.arange(0, {count})",
        "    inside = k < stop",
        f"    place = 2 * k + (begin > k * {tiles.chunk}).to(tl.int64)",
        *("    " + line for line in lines),
        *_finish(reduction),
    ]


def _zeros(reduction: Reduction, tiles: Tiles, real: str) -> list[str]:
    """Return lines that clear one sum per nonzero of a tile; they are reduced after the loop."""
    shape = tiles.nonzeros
    lines = [
        f"{row.lower()} = tl.zeros([{shape}, {tiles.lanes}], {real})" for row in reduction.rows
    ]
    lines += [f"{number.lower()} = tl.zeros([{shape}], {real})" for number in reduction.numbers]
    if not reduction.score:
        lines += [f"{o.lower()}_lost = {o.lower()}" for o in reduction.outputs]
    else:
        lines += [f'top = tl.full([{shape}], float("-inf"), {real})']
        lines += [f"total = tl.zeros([{shape}], {real})"]
    return lines


def _add(reduction: Reduction, rows: dict[str, str], numbers: dict[str, str]) -> list[str]:
    if not reduction.score:
        terms = {output.lower(): term for output, term in (rows | numbers).items()}
        return [f"{o}, {o}_lost = plus({o}, {o}_lost, {term})" for o, term in terms.items()]
    return [
        f'masked = tl.where(inside, {reduction.score}, float("-inf"))',
        "highest = tl.maximum(top, masked)",
        'shift = tl.where(highest == float("-inf"), 0.0, highest)',
        "less = tl.exp(top - shift)",
        "weight = tl.exp(masked - shift)",
        "total = total * less + weight",
        *(
            f"{o.lower()} = {o.lower()} * less[:, None] + weight[:, None] * {term}"
            for o, term in rows.items()
        ),
        *(f"{o.lower()} = {o.lower()} * less + weight * {term}" for o, term in numbers.items()),
        "top = highest",
    ]


def _finish(reduction: Reduction) -> list[str]:
    names = [output.lower() for output in reduction.outputs]
    if not reduction.score:
        return [f"return {', '.join(f'both({name}, {name}_lost)' for name in names)}"]
    rows = [f"tl.sum({o.lower()} * scale[:, None], 0) / total" for o in reduction.rows]
    numbers = [f"tl.sum({o.lower()} * scale, 0) / total" for o in reduction.numbers]
    return [
        "highest = tl.max(top, 0)",
        'shift = tl.where(highest == float("-inf"), 0.0, highest)',
        "scale = tl.exp(top - shift)",
        "total = tl.where(end > begin, tl.sum(total * scale, 0), 1.0)",
        "norm = tl.where(end > begin, shift + tl.log(total), 0.0)",
        f"return {', '.join(['norm', *rows, *numbers])}",
    ]


def _stores(
    reduction: Reduction, tiles: Tiles, names: Sequence[str], index: str, *, into: bool
) -> list[str]:
    lines = []
    for output, name in zip(reduction.outputs, names, strict=True):
        value = output.lower()
        if output in reduction.rows:
            place, mask = f"{name} + {index} * {tiles.row} + w", ", mask=valid"
        else:
            place, mask = f"{name} + {index} * {tiles.heads} + h", ""
        before = f"tl.load({place}{mask}{', other=0.0' if mask else ''}) + " if into else ""
        lines.append(f"tl.store({place}, {before}{value}{mask})")
    return lines

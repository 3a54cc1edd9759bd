"""Generator of Triton kernels that reduce over the nonzeros of each row of a CSR pattern.

A program owns a block of columns (or a head) of one row and walks the row's nonzeros, a tile of
them at a time. Rows of more than `CHUNK` nonzeros would keep one program busy long after all others
ended: the nonzeros are cut into chunks of that size, a program each, and the row's program merges
what they found. A chunk holds pieces of at most two such rows, so that nothing has to be counted
beforehand: piece 0 is of the row that the chunk begins in, piece 1 of one that begins inside it. No
atomics: the same bits from call to call.

A reduction is a sum, or an average with the softmax of scores as its weights. The average of a long
row is that of its pieces' averages, with the logarithm of a piece's sum of exp(score) as its score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType

import torch
from torch import Tensor

from scitoolkit.ops.codegen.gpu import on_device

CHUNK = 1024  # nonzeros of one program, of rows that have more
TILE = 512  # numbers of a tile, if its lanes allow
PER_WARP = 256  # numbers of a tile that a warp takes

HEAD = """
import triton
import triton.language as tl
"""


@dataclass(frozen=True)
class Tiles:
    """How rows of `heads` x `width` numbers are cut into programs and tiles.

    Attributes:
        heads: of a row; each has its programs.
        width: numbers of a head.
        limit: the most lanes of a program; a wider head is cut into blocks.
        chunk: nonzeros of a piece of a long row.

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
        """Numbers of a row that a program takes, a power of two."""
        return min(1 << (self.width - 1).bit_length(), self.limit)

    @property
    def blocks(self) -> int:
        """Blocks of lanes of a head."""
        return -(-self.width // self.lanes)

    @property
    def nonzeros(self) -> int:
        """Nonzeros of a tile."""
        return min(max(TILE // self.lanes, 4), 32)

    @property
    def warps(self) -> int:
        """Warps of a program."""
        return max(self.nonzeros * self.lanes // PER_WARP, 1)

    @property
    def row(self) -> int:
        """Numbers of a row."""
        return self.heads * self.width

    def begin(self) -> list[str]:
        """Lines that give the head `h`, the places `w` of the lanes and which are `valid`."""
        return [
            f"h = tl.program_id(1) // {self.blocks}",
            f"block = tl.program_id(1) % {self.blocks}",
            f"lane = block * {self.lanes} + tl.arange(0, {self.lanes})",
            f"valid = lane < {self.width}",
            f"w = h * {self.width} + lane",
        ]

    def row_of(self, name: str, index: str) -> str:
        """The lanes of one row of an array."""
        return f"tl.load({name} + {index} * {self.row} + w, mask=valid, other=0.0)"

    def rows_of(self, name: str, index: str) -> str:
        """The lanes of a tile of rows of an array; zero for nonzeros that are not `inside`."""
        mask = "inside[:, None] & valid[None, :]"
        return (
            f"tl.load({name} + {index}[:, None] * {self.row} + w[None, :], mask={mask}, other=0.0)"
        )

    def numbers_of(self, name: str, index: str) -> str:
        """This head's number of a tile of rows."""
        return f"tl.load({name} + {index} * {self.heads} + h, mask=inside, other=0.0)"


@dataclass(frozen=True)
class Reduction:
    """What is reduced over the nonzeros of each row.

    Attributes:
        name: of the kernel.
        inputs: names of its arrays; the dtype is that of X.
        row: lines for one row `i` and head `h`.
        each: lines for a tile of nonzeros `e`, of columns `j`; `inside` tells which there are.
        rows: outputs with a number a lane: name, and the term of the tile.
        numbers: outputs with a number a head: name, and the term of the tile.
        score: a name assigned in `each`: terms are averaged with the softmax of it, and the
            logarithm of the sum of exp(score), 0 for a row without nonzeros, is the first output.
        into: sums are added to what the outputs hold.
    """

    name: str
    inputs: tuple[str, ...]
    each: tuple[str, ...]
    rows: dict[str, str]
    row: tuple[str, ...] = ()
    numbers: dict[str, str] = field(default_factory=dict)
    score: str = ""
    into: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in their order."""
        return (*(["NORM"] if self.score else []), *self.rows, *self.numbers)


def generate(reduction: Reduction, tiles: Tiles) -> str:
    """Return the text of a reduction's kernels, to stand below `HEAD`.

    Example:
        >>> each = ("a = tl.load(A + e, mask=inside, other=0.0)",)
        >>> count = Reduction("count", ("X", "A"), each, {}, numbers={"OUT": "a"})
        >>> "def count_pieces(pointer, ends, column," in generate(count, Tiles(1, 1, 128, 1024))
        True
    """
    parts = tuple(f"PART_{each}" for each in reduction.outputs)
    given = ", ".join(reduction.inputs)
    found = ", ".join(each.lower() for each in reduction.outputs)
    bounds = ["begin = tl.load(pointer + i)", "end = tl.load(pointer + i + 1)"]
    of_nonzeros = f"{found} = {reduction.name}_of(i, begin, end, column, {given})"
    of_pieces = f"{found} = {reduction.name}_merged(begin, end, X, {', '.join(parts)})"
    store_piece = _stores(reduction, tiles, parts, "place", into=False)
    piece = [
        "k = tl.program_id(0).to(tl.int64)", "side = tl.program_id(2)", "place = 2 * k + side",
        *tiles.begin(), "i = tl.load(ends + place)", *bounds,
        f"start = k * {tiles.chunk}",
        f"if (end - begin > {tiles.chunk}) & ((side == 0) | (begin > start)):",
        "    begin = tl.maximum(begin, start)", f"    end = tl.minimum(end, start + {tiles.chunk})",
        f"    {of_nonzeros}", *("    " + line for line in store_piece),
    ]  # fmt: skip
    whole = [
        "i = tl.program_id(0).to(tl.int64)", *tiles.begin(), *bounds,
        f"if end - begin > {tiles.chunk}:", f"    {of_pieces}", "else:", f"    {of_nonzeros}",
        *_stores(reduction, tiles, reduction.outputs, "i", into=reduction.into),
    ]  # fmt: skip
    every = (*parts, *reduction.outputs)
    return (
        _function(f"{reduction.name}_of", f"i, begin, end, column, {given}", _of(reduction, tiles))
        + _function(
            f"{reduction.name}_merged", f"begin, end, X, {', '.join(parts)}",
            _merged(reduction, tiles, parts),
        )
        + _function(
            f"{reduction.name}_pieces", f"pointer, ends, column, {given}, {', '.join(parts)}", piece
        )
        + _function(reduction.name, f"pointer, column, {given}, {', '.join(every)}", whole)
    )  # fmt: skip


def run(
    module: ModuleType, name: str, tiles: Tiles, pointer: Tensor, column: Tensor,
    inputs: Sequence[Tensor], outputs: Sequence[Tensor],
) -> None:  # fmt: skip
    """Run a reduction's kernels.

    Args:
        module: loaded from text of `generate`.
        name: of the reduction.
        tiles: that the text was generated for.
        pointer, column: the pattern.
        inputs: in the order of the reduction's, contiguous.
        outputs: in the order of the reduction's, a row for each of the pattern's; written.
    """
    rows, nonzeros = pointer.shape[0] - 1, column.shape[0]
    if not rows:
        return
    chunks = -(-nonzeros // tiles.chunk) if nonzeros > tiles.chunk else 0
    parts = [each.new_empty(2 * chunks, *each.shape[1:]) for each in outputs]
    options = {"num_warps": tiles.warps, "enable_fp_fusion": True}
    programs = tiles.heads * tiles.blocks
    with on_device(column):
        if chunks:
            starts = torch.arange(0, nonzeros, tiles.chunk, device=column.device)
            ends = torch.stack([starts, (starts + tiles.chunk - 1).clamp_max(nonzeros - 1)], 1)
            ends = torch.searchsorted(pointer, ends, right=True) - 1
            getattr(module, f"{name}_pieces")[(chunks, programs, 2)](
                pointer, ends, column, *inputs, *parts, **options
            )
        getattr(module, name)[(rows, programs)](
            pointer, column, *inputs, *parts, *outputs, **options
        )


def _function(name: str, arguments: str, lines: Sequence[str]) -> str:
    body = "\n".join("    " + line for line in lines)
    return f"\n\n@triton.jit\ndef {name}({arguments}):\n{body}\n"


def _of(reduction: Reduction, tiles: Tiles) -> list[str]:
    """The reduction over nonzeros begin to end, all of row i."""
    count = tiles.nonzeros
    return [
        *tiles.begin(), *reduction.row, *_zeros(reduction, tiles),
        f"for first in range(begin, end, {count}):",
        f"    e = first + tl.arange(0, {count})",
        "    inside = e < end",
        "    j = tl.load(column + e, mask=inside, other=0).to(tl.int64)",
        *("    " + line for line in reduction.each),
        *("    " + line for line in _add(reduction, reduction.rows, reduction.numbers)),
        *_finish(reduction),
    ]  # fmt: skip


def _merged(reduction: Reduction, tiles: Tiles, parts: tuple[str, ...]) -> list[str]:
    """The same reduction over a long row's pieces."""
    count = tiles.nonzeros
    part = dict(zip(reduction.outputs, parts, strict=True))
    rows = {each: tiles.rows_of(part[each], "place") for each in reduction.rows}
    numbers = {each: tiles.numbers_of(part[each], "place") for each in reduction.numbers}
    lines = _add(reduction, rows, numbers)
    if reduction.score:
        lines.insert(0, f"{reduction.score} = {tiles.numbers_of(part['NORM'], 'place')}")
    return [
        *tiles.begin(), *_zeros(reduction, tiles),
        f"stop = (end - 1) // {tiles.chunk} + 1",
        f"for first in range(begin // {tiles.chunk}, stop, {count}):",
        f"    k = first + tl.arange(0, {count})",
        "    inside = k < stop",
        f"    place = 2 * k + (begin > k * {tiles.chunk}).to(tl.int64)",
        *("    " + line for line in lines),
        *_finish(reduction),
    ]  # fmt: skip


def _zeros(reduction: Reduction, tiles: Tiles) -> list[str]:
    """Sums of each place in a tile, added up at the end: nothing crosses lanes in the loop."""
    shape, real = tiles.nonzeros, "X.dtype.element_ty"
    lines = [
        f"{each.lower()} = tl.zeros([{shape}, {tiles.lanes}], {real})" for each in reduction.rows
    ]
    lines += [f"{each.lower()} = tl.zeros([{shape}], {real})" for each in reduction.numbers]
    if reduction.score:
        lines += [f'top = tl.full([{shape}], float("-inf"), {real})']
        lines += [f"total = tl.zeros([{shape}], {real})"]
    return lines


def _add(reduction: Reduction, rows: dict[str, str], numbers: dict[str, str]) -> list[str]:
    if not reduction.score:
        return [f"{each.lower()} += {term}" for each, term in (rows | numbers).items()]
    return [
        f'masked = tl.where(inside, {reduction.score}, float("-inf"))',
        "highest = tl.maximum(top, masked)",
        'shift = tl.where(highest == float("-inf"), 0.0, highest)',
        "less = tl.exp(top - shift)",
        "weight = tl.exp(masked - shift)",
        "total = total * less + weight",
        *(f"{o.lower()} = {o.lower()} * less[:, None] + weight[:, None] * {term}"
          for o, term in rows.items()),
        *(f"{o.lower()} = {o.lower()} * less + weight * {term}" for o, term in numbers.items()),
        "top = highest",
    ]  # fmt: skip


def _finish(reduction: Reduction) -> list[str]:
    names = [each.lower() for each in reduction.outputs]
    if not reduction.score:
        return [f"return {', '.join(f'tl.sum({each}, 0)' for each in names)}"]
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

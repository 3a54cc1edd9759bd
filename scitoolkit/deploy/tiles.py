"""Matrix products as register tiles over packed weights, for linear layers and convolutions.

A tile holds R rows x V vectors of results in registers. The inputs of a row are read one number at
a time, at any stride, in segments: a convolution is a product whose segments are the rows of its
window, without im2col. Weights are packed as (block of V vectors, input, output).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scitoolkit.deploy.builder import Builder, Processor
from scitoolkit.deploy.values import C_TYPES, Stride, View

# Symbols: R rows and V vectors of a tile, so R V results in registers, V weights and one input:
# R V + V + 1 registers. `w` are weights, `p` the inputs of a segment, `x<r>` one input of row r,
# `s<r>_<v>_<c>` partial sum c of a result; the copies c are added at the end, in a fixed order.
LATENCY = 4
"""Latency of a multiply-add in cycles; two start per cycle, so that 8 independent sums hide it."""
FETCH = 2.5
"""Cycles of a load of a vector of weights from the second-level cache, when each is one."""
PARALLEL = 300_000
"""Least number of multiply-adds of a product that is divided among threads."""
UNROLLED = 16
"""Largest number of blocks of outputs that are unrolled; more are a loop, which compiles faster."""


@dataclass(frozen=True)
class Window:
    """Positions of the inputs of a row of a product, relative to the row.

    Attributes:
        length: inputs per segment.
        step: stride between inputs of a segment.
        segments: offset of each segment.
    """

    length: int
    step: int = 1
    segments: Sequence[int] = (0,)


@functools.cache
def best_tile(rows: int, vectors: int, registers: int) -> tuple[int, int]:
    """Return (rows, vectors) of the tile with the least estimated time.

    Example:
        >>> best_tile(1, 8, 32)
        (1, 8)
    """
    tiles = []
    for r, v in itertools.product(range(1, min(rows, 14) + 1), range(1, min(vectors, 8) + 1)):
        if r * v + v + 1 > registers:
            continue
        # Bounds of a step in cycles: multiply-adds and loads at two a cycle, the latency of
        # dependent sums, weights from the second-level cache. The largest decides.
        cost = sum(
            max(a * b / 2, (a + b) / 2, LATENCY / chains(a, b), FETCH * b)
            for a in _parts(rows, r)
            for b in _parts(vectors, v)
        )
        # Of equal cost: more vectors, then fewer rows.
        tiles.append((cost, -v, r))
    _, v, r = min(tiles)
    return r, -v


def chains(rows: int, vectors: int) -> int:
    """Return the number of independent partial sums per result that hide the latency."""
    return max(1, min(4, 2 * LATENCY // (rows * vectors)))


def _parts(total: int, part: int) -> list[int]:
    return [part] * (total // part) + ([total % part] if total % part else [])


def pack(weights: np.ndarray, vectors: int, lanes: int) -> np.ndarray:
    """Pack weights (inputs, outputs) in blocks of `vectors` vectors, outputs padded with 0.

    Example:
        >>> pack(np.arange(6.0).reshape(2, 3), 1, 2).tolist()
        [0.0, 1.0, 3.0, 4.0, 2.0, 0.0, 5.0, 0.0]
    """
    inputs, outputs = weights.shape
    padded = np.zeros((inputs, -(-outputs // lanes) * lanes), weights.dtype)
    padded[:, :outputs] = weights
    step = vectors * lanes
    return np.concatenate(
        [
            np.ascontiguousarray(padded[:, k : k + step]).ravel()
            for k in range(0, padded.shape[1], step)
        ]
    )


def tile_name(dtype: str, rows: int, vectors: int) -> str:
    """Return the name of a kernel."""
    return f"stk_tile_{C_TYPES[dtype]}_{rows}x{vectors}"


def tile_source(dtype: str, rows: int, vectors: int) -> str:
    """Return the C function of one tile.

    It sums `segments` segments of `length` inputs; segment s begins at `a + at[s]`, rows are `row`
    elements apart and inputs `step`. Inlining with constant arguments specialises each call.
    """
    real, copies = C_TYPES[dtype], chains(rows, vectors)
    results = [(r, v) for r in range(rows) for v in range(vectors)]

    def one_input(copy: int, ahead: str) -> list[str]:
        lines = [
            f"vec_{real} w{v} = *(const vec_{real} *)(w + ({ahead}) * {vectors} * LANES_{real}"
            f" + {v} * LANES_{real});"
            for v in range(vectors)
        ]
        for r in range(rows):
            lines.append(f"{real} x{r} = p[{r} * row + ({ahead}) * step];")
        lines += [f"s{r}_{v}_{copy} += x{r} * w{v};" for r, v in results]
        return lines

    names = [f"s{r}_{v}_{c}" for r, v in results for c in range(copies)]
    lines = [
        f"static inline __attribute__((always_inline)) void {tile_name(dtype, rows, vectors)}(",
        f"    const {real} *a, int64_t row, int64_t step, const int32_t *at, int64_t segments,",
        f"    int64_t length, const {real} *w, const {real} *bias, {real} *out,",
        "    int64_t out_row) {",
        f"  const vec_{real} none = {{0}};",
        *(f"  vec_{real} {name} = none;" for name in names),
        "  for (int64_t s = 0; s < segments; s++) {",
        f"    const {real} *p = a + (at ? at[s] : 0);",
        "    int64_t k = 0;",
        f"    for (; k + {copies} <= length; k += {copies}) {{",
        *(f"      {{ {' '.join(one_input(c, str(c)))} }}" for c in range(copies)),
        f"      p += {copies} * step;",
        f"      w += {copies} * {vectors} * LANES_{real};",
        "    }",
    ]
    if copies > 1:
        lines += [
            "    for (; k < length; k++) {",
            f"      {{ {' '.join(one_input(0, '0'))} }}",
            "      p += step;",
            f"      w += {vectors} * LANES_{real};",
            "    }",
        ]
    lines.append("  }")
    for r, v in results:
        total = " + ".join(f"s{r}_{v}_{c}" for c in range(copies))
        lines.append(
            f"  *(vec_{real} *)(out + {r} * out_row + {v} * LANES_{real}) = {total} + "
            f"(bias ? *(const vec_{real} *)(bias + {v} * LANES_{real}) : none);"
        )
    return "\n".join([*lines, "}"])


@dataclass(frozen=True)
class TiledWeights:
    """Packed weights of a product.

    Attributes:
        view: (matrices..., block, input, output) in blocks of `vectors` vectors.
        vectors: vectors per block; the last block may have fewer.
        inputs, outputs: size of a matrix.
        bias: constant bias, or None.
    """

    view: View
    vectors: int
    inputs: int
    outputs: int
    bias: View | None = None


def constant_weights(
    builder: Builder, matrices: np.ndarray, bias: np.ndarray | None, rows: int
) -> TiledWeights:
    """Pack constant matrices (matrices..., inputs, outputs) for tiles over `rows` rows."""
    *count, inputs, outputs = matrices.shape
    lanes = builder.target.width(str(matrices.dtype))
    vectors = -(-outputs // lanes)
    v = best_tile(builder.target.rows or rows, vectors, builder.target.registers)[1]
    flat = [pack(m, v, lanes) for m in matrices.reshape(-1, inputs, outputs)]
    view = builder.constant(np.stack(flat).reshape(*count, -1))
    added = None if bias is None else builder.constant(pack(bias[None], vectors, lanes))
    return TiledWeights(view, v, inputs, outputs, added)


def computed_weights(builder: Builder, b: View, rows: int) -> TiledWeights:
    """Pack computed matrices (matrices..., inputs, outputs) in the generated code."""
    *count, inputs, outputs = b.shape
    lanes = builder.target.width(b.dtype)
    vectors = -(-outputs // lanes)
    v = best_tile(rows, vectors, builder.target.registers)[1]
    # Blocks of equal size, so that one view with constant strides describes all of them.
    v = max(d for d in range(1, v + 1) if vectors % d == 0)
    packed = builder.new((*count, vectors // v, inputs, v * lanes), b.dtype)
    last, block = len(packed.shape) - 1, len(count)
    zero = builder.constant(np.zeros(1, b.dtype))
    for k in range(vectors // v):
        part = packed.take(block, [k]).reshape((*count, inputs, v * lanes))
        assert part is not None
        stop = min(outputs, (k + 1) * v * lanes)
        here = range(k * v * lanes, stop)
        builder.store(b.take(len(b.shape) - 1, here), part.take(last - 1, range(len(here))))
        if len(here) < v * lanes:
            rest = part.take(last - 1, range(len(here), v * lanes))
            builder.store(zero.expand(rest.shape), rest)
    whole = packed.reshape((*count, vectors // v * inputs * v * lanes))
    assert whole is not None
    return TiledWeights(whole, v, inputs, outputs)


def product(
    builder: Builder, a: View, rows: Sequence[int], window: Window, weights: TiledWeights
) -> View:
    """Write the product of all rows of a view with weights.

    Args:
        builder: the program.
        a: inputs; the dims `rows` become dims of the result.
        rows: dims of `a`; the first ones also index the matrices if there are several.
        window: positions of the inputs of a row.
        weights: packed for `a.dtype`.

    Returns:
        A view of shape (rows..., outputs).
    """
    lanes = builder.target.width(a.dtype)
    vectors = -(-weights.outputs // lanes)
    shape = (*(a.shape[d] for d in rows), weights.outputs)
    out = builder.new(shape, a.dtype, (), vectors * lanes)
    matrices = [*weights.view.strides[:-1], *[0] * len(shape)]
    dims = _loops(
        [(a.shape[d], a.strides[d], out.strides[k], matrices[k]) for k, d in enumerate(rows)]
    )
    inner, row, out_row, _ = dims.pop()
    r = best_tile(inner, vectors, builder.target.registers)[0]
    # Weights were packed for another number of rows; their block width is fixed, r is not.
    while r * weights.vectors + weights.vectors + 1 > builder.target.registers and r > 1:
        r -= 1
    names = [f"i{k}" for k in range(len(dims))]
    at = "0" if list(window.segments) == [0] else builder.table(tuple(window.segments))
    work = inner * weights.inputs * weights.outputs * math.prod(dim[0] for dim in dims)

    def place(view: View, which: int, *more: str) -> str:
        parts = [view.buffer.name, str(view.offset)]
        for name, dim in zip(names, dims, strict=True):
            stride = dim[which]
            parts.append(
                f"{builder.table(stride)}[{name}]"
                if isinstance(stride, tuple)
                else f"{name} * {stride}"
            )
        return " + ".join([*parts, *more])

    def call(rows_now: int, j: str, first: str, wide: int) -> str:
        builder.tiles.add((a.dtype, rows_now, wide))
        bias = "0"
        if weights.bias is not None:
            bias = f"{weights.bias.buffer.name} + {weights.bias.offset} + {first} * {lanes}"
        return (
            f"{tile_name(a.dtype, rows_now, wide)}({place(a, 1, f'({j}) * {row}')}, {row}, "
            f"{window.step}, {at}, {len(window.segments)}, {window.length}, "
            f"{place(weights.view, 3, f'{first} * {lanes * weights.inputs}')}, {bias}, "
            f"{place(out, 2, f'({j}) * {out_row} + {first} * {lanes}')}, {out_row});"
        )

    text = []
    whole, blocks = inner - inner % r, vectors // weights.vectors
    # The last block may be narrower and has a kernel of that width, after the loop.
    looped = blocks if blocks > UNROLLED else 0
    parts: list[tuple[str, int]] = [(f"(b * {weights.vectors})", looped)] if looped else []
    parts += [(str(k), 0) for k in range(looped * weights.vectors, vectors, weights.vectors)]
    for first, count in parts:
        wide = weights.vectors if count else min(weights.vectors, vectors - int(first))
        loops = [(n, d[0]) for n, d in zip(names, dims, strict=True)]
        loops += [("b", count)] if count else []
        # Below this, starting threads takes longer than the product.
        if work >= PARALLEL:
            joined = f" collapse({len(loops)})" if len(loops) > 1 else ""
            text.append(f"#pragma omp parallel for{joined}")
        text += [f"for (int64_t {n} = 0; {n} < {size}; {n}++)" for n, size in loops]
        tail = call(inner % r, str(whole), first, wide) if inner % r else ""
        line = f"for (int64_t j = 0; j < {whole}; j += {r}) {call(r, 'j', first, wide)}"
        text += ["{", line, tail, "}"] if loops else [line, tail]
    builder.work += work
    used = [weights.bias] if weights.bias is not None else []
    builder.emit("\n".join(line for line in text if line), a, out, weights.view, *used)
    return out


def _loops(dims: Sequence[tuple[int, Stride, Stride, Stride]]) -> list[tuple[Any, ...]]:
    """Return the loops over rows, merged if possible; the last one has integer strides."""
    out: list[tuple[Any, ...]] = []
    for size, *strides in dims:
        if size == 1:
            continue
        if (
            out
            and all(isinstance(s, int) for s in strides)
            # Contiguous dims are one loop: fewer remainders of tiles.
            and list(out[-1][1:]) == [s * size for s in strides]
        ):
            out[-1] = (out[-1][0] * size, *strides)
        else:
            out.append((size, *strides))
    if not out or not isinstance(out[-1][1], int) or out[-1][3]:
        out.append((1, 0, 0, 0))
    return out


def prelude(target: Processor) -> str:
    """Return the C definitions of vector types."""
    return "\n".join(
        f"#define LANES_{real} {target.width(dtype)}\n"
        f"typedef {real} vec_{real} __attribute__((vector_size({target.width(dtype) * size}), "
        f"aligned({size}), may_alias));"
        for dtype, real, size in (("float32", "float", 4), ("float64", "double", 8))
    )

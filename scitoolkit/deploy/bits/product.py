"""Products with quantised weights: inputs are quantised, then multiplied in integer tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.deploy.bits.codes import Uniform
from scitoolkit.deploy.bits.tiles import pack, tile_name
from scitoolkit.deploy.values import View, numel

if TYPE_CHECKING:
    from scitoolkit.deploy.builder import Builder

VECTORS = 4
"""Vectors of outputs of a tile, equal for all numbers of rows so that weights are stored once."""
PARALLEL = 2_000_000
"""Least number of multiply-adds of a product that is divided among threads."""


def few_bits(builder: Builder, a: View, coded: Uniform, bias: np.ndarray | None) -> View:
    """Write the product of (..., inputs) with a transposed quantised matrix (outputs, inputs).

    Returns:
        A view (..., outputs).
    """
    a = builder.dense(a)
    bits, lanes = coded.bits, builder.target.width("float32")
    outputs, inputs = coded.codes.shape
    rows, groups = numel(a.shape[:-1]), coded.scales.shape[1]
    vectors = -(-outputs // lanes)
    words = coded.input_bits == 16
    # Sums over a group fit into 32 bits.
    most = min(1 << coded.input_bits - 1, 2**31 // ((127 if words else 255) * coded.group)) - 1
    padded = groups * coded.group
    whole = np.zeros((padded, vectors * lanes), np.int16)
    # Byte products have an unsigned factor, of which the middle is subtracted in the end.
    whole[:inputs, :outputs] = coded.codes.T + (128 if bits == 8 and not words else 0)
    steps = np.zeros((groups, vectors * lanes), np.float32)
    steps[:, :outputs] = coded.scales.T
    wide = VECTORS * lanes
    packed = builder.constant(pack(whole, bits, coded.input_bits, VECTORS, lanes).view(np.int8))
    scales = builder.constant(
        np.concatenate([steps[:, k : k + wide].ravel() for k in range(0, vectors * lanes, wide)])
    )
    added = None
    if bias is not None:
        line = np.zeros(vectors * lanes, np.float32)
        line[:outputs] = bias
        added = builder.constant(line)
    codes = builder.new((rows, padded), f"int{coded.input_bits}")
    units, sums = builder.new((rows, groups), "float32"), builder.new((rows, groups), "float32")
    out = builder.new((*a.shape[:-1], outputs), "float32", (), vectors * lanes)
    q, s, t = codes.buffer.name, units.buffer.name, sums.buffer.name
    builder.emit(
        f"for (int64_t j = 0; j < {rows}; j++)\n"
        f"  stk_round_{'words' if words else 'bytes'}({a.buffer.name} + {a.offset} + "
        f"j * {inputs}, {inputs}, {coded.group}, {most}.0f, {q} + j * {padded}, "
        f"{s} + j * {groups}, {t} + j * {groups});",
        a,
        codes,
        units,
        sums,
    )
    high = min(rows, 4 if builder.target.registers > 16 else 2)

    def call(rows_now: int, row: str, first: str, count: int) -> str:
        builder.bit_tiles.add(kernel := (bits, coded.input_bits, rows_now, count))
        start = "0" if added is None else f"{added.buffer.name} + ({first}) * {lanes}"
        return (
            f"{tile_name(*kernel)}({q} + ({row}) * {padded}, {padded}, "
            f"{s} + ({row}) * {groups}, {t} + ({row}) * {groups}, {groups}, {coded.group}, "
            f"{packed.buffer.name} + ({first}) * (int64_t){padded * lanes * bits // 8}, "
            f"{scales.buffer.name} + ({first}) * {groups * lanes}, {start}, "
            f"{out.buffer.name} + ({row}) * {vectors * lanes} + ({first}) * {lanes}, "
            f"{vectors * lanes});"
        )

    def block(first: str, count: int) -> str:
        main = rows - rows % high
        text = f"for (int64_t j = 0; j < {main}; j += {high}) {call(high, 'j', first, count)}"
        return text + (call(rows % high, str(main), first, count) if rows % high else "")

    work, last = rows * inputs * outputs, vectors - vectors % VECTORS
    text = [
        "#pragma omp parallel for" if work >= PARALLEL and last > VECTORS else "",
        f"for (int64_t v = 0; v < {last}; v += {VECTORS}) {{ {block('v', VECTORS)} }}"
        if last
        else "",
        block(str(last), vectors - last) if vectors > last else "",
    ]
    builder.work += work
    extra = [] if added is None else [added]
    builder.emit("\n".join(t for t in text if t), codes, units, sums, packed, scales, out, *extra)
    return out

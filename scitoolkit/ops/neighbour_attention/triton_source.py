"""Triton kernels of gated attention among an atom's neighbours, and of moments of edges.

The edges of an atom are contiguous. A program computes the queries, or for gradients the keys, of
an atom in tiles and loops over the others, so that no attention matrix is stored; its rows are
recomputed from the logarithm of each row's sum of exponentials. There are no atomics, and nothing
is padded to the largest number of neighbours, which only the device knows.

Source: Dao, FlashAttention-2, arXiv 2307.08691 (recomputation from the logarithm of the sums).
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import load_triton
from scitoolkit.ops.neighbour_attention.spec import LOGIT_SHIFT, NeighbourAttentionSpec

OWN, OTHER = 16, 32  # edges of a tile; OWN < OTHER, so that warps share rows and divide columns
PARTS = 4  # programs per atom
WARPS = 4
MAX_WIDTH = 128  # columns of queries and basis functions

# Letters: i the edges of the program's own tile, j the others; f the switching function, x, y, z
# the directions, p a softmax weight, gate what multiplies it, s the logit before switching.
SOURCE = """
import triton
import triton.language as tl


@triton.jit
def product(a, b):
    return tl.dot(a, b, input_precision="tf32x3", out_dtype=a.dtype)


@triton.jit
def features(X, e, inside, H: tl.constexpr, LANES: tl.constexpr):
    w = tl.arange(0, LANES)
    mask = inside[:, None] & (w < H)[None, :]
    return tl.load(X + e[:, None] * H + w[None, :], mask=mask, other=0.0)


@triton.jit
def stored(X, value, e, inside, H: tl.constexpr, LANES: tl.constexpr):
    w = tl.arange(0, LANES)
    mask = inside[:, None] & (w < H)[None, :]
    tl.store(X + e[:, None] * H + w[None, :], value, mask=mask)


@triton.jit
def number(X, e, inside):
    return tl.load(X + e, mask=inside, other=0.0)


@triton.jit
def logits(s, pair, SMOOTH: tl.constexpr):
    if SMOOTH:
        s = (s + {shift}) * pair - {shift}
    return s


@triton.jit
def gates(pair, cosine, SMOOTH: tl.constexpr, ANGULAR: tl.constexpr):
    gate = pair * 0.0 + 1.0
    if SMOOTH:
        gate = gate * pair
    if ANGULAR:
        gate = gate * cosine
    return gate


@triton.jit
def forward({common}, OUT, NORM, {sizes}):
    {begin}
    for first in range(begin + part * OWN, end, PARTS * OWN):
        {own}
        q = features(Q, i, here, H, LANES) * tl.load(SCALE)
        top = tl.full([OWN], {least}, Q.dtype.element_ty)
        total = tl.zeros([OWN], Q.dtype.element_ty)
        out = tl.zeros([OWN, LANES], Q.dtype.element_ty)
        for second in range(begin, end, OTHER):
            {other}
            s = product(q, tl.trans(features(K, j, there, H, LANES)))
            logit = tl.where(there[None, :], logits(s, pair, SMOOTH), float("-inf"))
            highest = tl.maximum(top, tl.max(logit, 1))
            less = tl.exp(top - highest)
            p = tl.exp(logit - highest[:, None])
            total = total * less + tl.sum(p, 1)
            v = features(V, j, there, H, LANES)
            out = out * less[:, None] + product(p * gates(pair, cosine, SMOOTH, ANGULAR), v)
            top = highest
        if SMOOTH:
            total += tl.exp(-{shift} - top) * (tl.load(SEL) - (end - begin))
        stored(OUT, out / total[:, None], i, here, H, LANES)
        tl.store(NORM + i, top + tl.log(total), mask=here)


@triton.jit
def queries({common}, NORM, MEAN, G, BY_Q, BY_F, BY_D, {sizes}):
    {begin}
    for first in range(begin + part * OWN, end, PARTS * OWN):
        {own}
        q, g = features(Q, i, here, H, LANES), features(G, i, here, H, LANES)
        norm, mean = number(NORM, i, here), number(MEAN, i, here)
        by_q = tl.zeros([OWN, LANES], Q.dtype.element_ty)
        {zeros}
        for second in range(begin, end, OTHER):
            {other}
            k = features(K, j, there, H, LANES)
            s = product(q, tl.trans(k)) * tl.load(SCALE)
            along = product(g, tl.trans(features(V, j, there, H, LANES)))
            logit, inside = logits(s, pair, SMOOTH), here[:, None] & there[None, :]
            p = tl.where(inside, tl.exp(logit - norm[:, None]), 0.0)
            change = p * (along * gates(pair, cosine, SMOOTH, ANGULAR) - mean[:, None])
            {sums}
            if SMOOTH:
                change = change * pair
            by_q += product(change, k)
        stored(BY_Q, by_q * tl.load(SCALE), i, here, H, LANES)
        {stores}


@triton.jit
def keys({common}, NORM, MEAN, G, BY_K, BY_V, BY_F, BY_D, {sizes}):
    {begin}
    for first in range(begin + part * OWN, end, PARTS * OWN):
        {own}
        k, v = features(K, i, here, H, LANES), features(V, i, here, H, LANES)
        by_k = tl.zeros([OWN, LANES], Q.dtype.element_ty)
        by_v = tl.zeros([OWN, LANES], Q.dtype.element_ty)
        {zeros}
        for second in range(begin, end, OTHER):
            {other}
            q, g = features(Q, j, there, H, LANES), features(G, j, there, H, LANES)
            norm, mean = number(NORM, j, there), number(MEAN, j, there)
            s = product(k, tl.trans(q)) * tl.load(SCALE)
            along = product(v, tl.trans(g))
            logit, inside = logits(s, pair, SMOOTH), here[:, None] & there[None, :]
            p = tl.where(inside, tl.exp(logit - norm[None, :]), 0.0)
            gate = gates(pair, cosine, SMOOTH, ANGULAR)
            change = p * (along * gate - mean[None, :])
            by_v += product(p * gate, g)
            {sums}
            if SMOOTH:
                change = change * pair
            by_k += product(change, q)
        stored(BY_K, by_k * tl.load(SCALE), i, here, H, LANES)
        stored(BY_V, by_v, i, here, H, LANES)
        {stores}


@triton.jit
def moments(pointer, BASIS, ROWS, OUT, H: tl.constexpr, LANES: tl.constexpr, OWN: tl.constexpr):
    atom = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(pointer + atom), tl.load(pointer + atom + 1)
    out0 = tl.zeros([LANES], BASIS.dtype.element_ty)
    out1, out2, out3 = out0, out0, out0
    for first in range(begin, end, OWN):
        i = first + tl.arange(0, OWN)
        here = i < end
        basis = features(BASIS, i, here, H, LANES)
        out0 += tl.sum(basis * number(ROWS, 4 * i, here)[:, None], 0)
        out1 += tl.sum(basis * number(ROWS, 4 * i + 1, here)[:, None], 0)
        out2 += tl.sum(basis * number(ROWS, 4 * i + 2, here)[:, None], 0)
        out3 += tl.sum(basis * number(ROWS, 4 * i + 3, here)[:, None], 0)
    w = tl.arange(0, LANES)
    place = OUT + (atom * H + w) * 4
    tl.store(place, out0, mask=w < H)
    tl.store(place + 1, out1, mask=w < H)
    tl.store(place + 2, out2, mask=w < H)
    tl.store(place + 3, out3, mask=w < H)


@triton.jit
def edges(
    pointer, BASIS, ROWS, G, BY_BASIS, BY_ROWS,
    H: tl.constexpr, LANES: tl.constexpr, OWN: tl.constexpr,
):
    atom = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(pointer + atom), tl.load(pointer + atom + 1)
    w = tl.arange(0, LANES)
    place = G + (atom * H + w) * 4
    for first in range(begin, end, OWN):
        i = first + tl.arange(0, OWN)
        here = i < end
        basis = features(BASIS, i, here, H, LANES)
        by_basis = basis * 0.0
        for c in tl.static_range(4):
            g = tl.load(place + c, mask=w < H, other=0.0)[None, :]
            by_basis += number(ROWS, 4 * i + c, here)[:, None] * g
            tl.store(BY_ROWS + 4 * i + c, tl.sum(basis * g, 1), mask=here)
        stored(BY_BASIS, by_basis, i, here, H, LANES)
"""
COMMON = "pointer, Q, K, V, F, D, SCALE, SEL"
SIZES = ", ".join(
    f"{name}: tl.constexpr" for name in ("H", "LANES", "OWN", "OTHER", "PARTS", "SMOOTH", "ANGULAR")
)
BEGIN = """
atom = tl.program_id(0).to(tl.int64)
part = tl.program_id(1)
begin = tl.load(pointer + atom)
end = tl.load(pointer + atom + 1)
"""
TILE = """
{i} = {first} + tl.arange(0, {size})
{here} = {i} < end
f{i} = number(F, {i}, {here})
x{i} = number(D, 3 * {i}, {here})
y{i} = number(D, 3 * {i} + 1, {here})
z{i} = number(D, 3 * {i} + 2, {here})
"""
PAIR = """
pair = fi[:, None] * fj[None, :]
cosine = xi[:, None] * xj[None, :] + yi[:, None] * yj[None, :] + zi[:, None] * zj[None, :]
"""
ZEROS = """
by_f = tl.zeros([OWN], Q.dtype.element_ty)
by_x = by_f
by_y = by_f
by_z = by_f
"""
# Both roles of an edge add to the gradients of its switching function and direction.
SUMS = """
if SMOOTH:
    turned = along * p * cosine if ANGULAR else along * p
    by_f += tl.sum((turned + change * (s + {shift})) * fj[None, :], 1)
if ANGULAR:
    slope = along * p * pair if SMOOTH else along * p
    by_x += tl.sum(slope * xj[None, :], 1)
    by_y += tl.sum(slope * yj[None, :], 1)
    by_z += tl.sum(slope * zj[None, :], 1)
"""
STORES = """
tl.store(BY_F + i, by_f, mask=here)
tl.store(BY_D + 3 * i, by_x, mask=here)
tl.store(BY_D + 3 * i + 1, by_y, mask=here)
tl.store(BY_D + 3 * i + 2, by_z, mask=here)
"""


def generate() -> str:
    """Return the Triton source of the kernels, for both precisions.

    Example:
        >>> "def forward(pointer, Q, K, V," in generate()
        True
    """
    shift = repr(LOGIT_SHIFT)
    blocks = {
        "begin": BEGIN,
        "own": TILE.format(i="i", here="here", first="first", size="OWN"),
        "other": TILE.format(i="j", here="there", first="second", size="OTHER") + PAIR.strip(),
        "zeros": ZEROS,
        "sums": SUMS.format(shift=shift),
        "stores": STORES,
    }
    values = {"common": COMMON, "sizes": SIZES, "shift": shift, "least": "LEAST"}
    lines = []
    for line in SOURCE.splitlines():
        name = line.strip()[1:-1]
        if line.strip() == f"{{{name}}}" and name in blocks:
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + part for part in blocks[name].strip().splitlines()]
        else:
            for key, value in values.items():
                line = line.replace(f"{{{key}}}", value)
            lines.append(line)
    least = f'(-{shift} if SMOOTH else float("-inf"))'
    return "\n".join(lines).replace("LEAST", least) + "\n"


@functools.cache
def module() -> ModuleType:
    """Return the module of the kernels."""
    return load_triton(generate())


def gpu_kernels(spec: NeighbourAttentionSpec, dtype: torch.dtype) -> ModuleType:
    """Return the module of the kernels of a spec.

    Raises:
        BackendError: features wider than a program holds in registers.
    """
    widest = max(spec.widths[-1], spec.attention_width)
    if widest > MAX_WIDTH:
        raise BackendError(
            f"no GPU kernel for features of {widest} columns", allowed=f"at most {MAX_WIDTH}"
        )
    return module()

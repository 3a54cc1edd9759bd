"""Triton kernels of the symmetric contraction, for every spec the same: the terms are tables.

torch computes the coefficients of the polynomial (`spec.polynomial`) from the weights once per
element, with autograd; they are an argument of the kernels:

    contract       one component of values or gradients, or its derivative along DX
                       z_m  = sum_r c_r x_a x_b x_c ...     gx_i = sum_r c_r g_m d(x_a x_b ...)/dx_i
    coefficients   gradients of the coefficients: g_m x_a x_b x_c, summed over nodes

A program of `contract` computes a component for a tile of nodes of one element and a block of
channels, so that a loaded coefficient serves several nodes; their x are read again and again from
the first-level cache. A program of `coefficients` sums a part of the rows over a run of an
element's nodes, and the runs are summed afterwards. There are no atomics.
"""

from __future__ import annotations

from scitoolkit.ops.symmetric_contraction.triton_tables import (
    COMPONENT_BITS,
    ROW_BITS,
    VARIABLE_BITS,
)

TILE = 4  # nodes per program
BLOCK = 32  # channels per program
ROWS = 32  # rows of coefficients per program that computes their gradients
RUNS = 16  # runs of the nodes of an element, for the gradients of coefficients
LAUNCH = {"num_warps": 1, "enable_fp_fusion": True}

SOURCE = f"""
import triton
import triton.language as tl


@triton.jit
def monomial(X, DX, at, channels, mask, word, DEGREE: tl.constexpr, TANGENT: tl.constexpr):
    # The product of DEGREE variables, or its derivative along DX by the product rule.
    at0 = at + (word & {(1 << VARIABLE_BITS) - 1}) * channels
    value = tl.load(X + at0, mask=mask, other=0.0)
    along = value
    if TANGENT:
        along = tl.load(DX + at0, mask=mask, other=0.0)
    for k in tl.static_range(1, DEGREE):
        here = at + ((word >> ({VARIABLE_BITS} * k)) & {(1 << VARIABLE_BITS) - 1}) * channels
        x = tl.load(X + here, mask=mask, other=0.0)
        if TANGENT:
            along = along * x + value * tl.load(DX + here, mask=mask, other=0.0)
        value = value * x
    if TANGENT:
        value = along
    return value


@triton.jit
def contract(
    X, DX, C, G, OUT, words, bounds, ptr, order, tiles, starts, channels,
    NUM_ROWS, DIM_IN, DIM_G, DIM_OUT,
    DEPTH: tl.constexpr, HAS_G: tl.constexpr, TANGENT: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):
    t = tl.program_id(0)
    component = tl.program_id(2)
    e = tl.load(tiles + t)
    k = tl.load(starts + t) + tl.arange(0, TILE)
    inside = k < tl.load(ptr + e + 1)
    n = tl.load(order + k, mask=inside, other=0)[:, None]
    u = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    channel = u < channels
    mask = inside[:, None] & channel
    at = n * DIM_IN * channels + u
    c = C + e * NUM_ROWS * channels + u
    g = G + n * DIM_G * channels + u
    total = tl.zeros([TILE, BLOCK], OUT.dtype.element_ty)
    first = bounds + component * (DEPTH + 2)
    for degree in tl.static_range(TANGENT, DEPTH + 1):
        for j in range(tl.load(first + degree), tl.load(first + degree + 1)):
            head = tl.load(words + 2 * j)
            row = (head & {(1 << ROW_BITS) - 1}).to(tl.int64)
            value = tl.load(c + row * channels, mask=channel, other=0.0)
            if HAS_G:
                factor = (head >> {ROW_BITS + COMPONENT_BITS}).to(OUT.dtype.element_ty)
                m = (head >> {ROW_BITS}) & {(1 << COMPONENT_BITS) - 1}
                value = factor * value * tl.load(g + m * channels, mask=mask, other=0.0)
            if degree > 0:
                word = tl.load(words + 2 * j + 1)
                value = value * monomial(X, DX, at, channels, mask, word, degree, TANGENT)
            total += value
    tl.store(OUT + (n * DIM_OUT + component) * channels + u, total, mask=mask)


@triton.jit
def coefficients(
    X, DX, G, SUMS, words, bounds, ptr, order, channels,
    NUM_ROWS, DIM_IN, DIM_G,
    DEPTH: tl.constexpr, TANGENT: tl.constexpr, RUNS: tl.constexpr, ROWS: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):
    job = tl.program_id(0).to(tl.int64)
    e = job // RUNS
    first = tl.load(ptr + e)
    last = tl.load(ptr + e + 1)
    size = (last - first + RUNS - 1) // RUNS
    n0 = tl.minimum(first + (job % RUNS) * size, last)
    n1 = tl.minimum(n0 + size, last)
    u = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    channel = u < channels
    out = SUMS + job * NUM_ROWS * channels + u
    j0 = tl.program_id(1) * ROWS
    for degree in tl.static_range(1, DEPTH + 1):
        begin = tl.maximum(tl.load(bounds + degree), j0)
        end = tl.minimum(tl.load(bounds + degree + 1), j0 + ROWS)
        for j in range(begin, end):
            head = tl.load(words + 2 * j)
            word = tl.load(words + 2 * j + 1)
            row = (head & {(1 << ROW_BITS) - 1}).to(tl.int64)
            m = (head >> {ROW_BITS}) & {(1 << COMPONENT_BITS) - 1}
            total = tl.zeros([TILE, BLOCK], SUMS.dtype.element_ty)
            for k0 in range(n0, n1, TILE):
                k = k0 + tl.arange(0, TILE)
                inside = k < n1
                n = tl.load(order + k, mask=inside, other=0)[:, None]
                mask = inside[:, None] & channel[None, :]
                at = n * DIM_IN * channels + u[None, :]
                grad = tl.load(G + (n * DIM_G + m) * channels + u[None, :], mask=mask, other=0.0)
                total += grad * monomial(X, DX, at, channels, mask, word, degree, TANGENT)
            tl.store(out + row * channels, tl.sum(total, 0), mask=channel)
"""

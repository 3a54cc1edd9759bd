"""Triton kernels of `block_codec`: 32 blocks of 64 values per program."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scitoolkit.ops.codegen import load_triton, on_device

BLOCKS = 32  # per program; of `move`, whose rows are longer, a quarter

SOURCE = """
import triton
import triton.language as tl


@triton.jit
def width_of(code):
    return tl.where(code < 13, code, tl.where(code == 13, 14, tl.where(code == 14, 17, 21)))


@triton.jit
def place(height, width, down, across, count):
    # Element of each value of the program's blocks, and where a block reaches over an edge.
    block = tl.program_id(0).to(tl.int64) * 32 + tl.arange(0, 32)
    value = tl.arange(0, 64)
    plane = block // (down * across)
    y = ((block // across) % down)[:, None] * 8 + (value // 8)[None, :]
    x = (block % across)[:, None] * 8 + (value % 8)[None, :]
    inside = (y < height) & (x < width) & (block < count)[:, None]
    y, x = tl.minimum(y, height - 1), tl.minimum(x, width - 1)
    return block, (plane[:, None] * height + y) * width + x, inside


@triton.jit(do_not_specialize=["count", "height", "width", "down", "across", "factor"])
def encode(X, NORM, LOW, HIGH, MATRIX, SLOTS, SIZES, NUMBERS, count, height, width, down, across,
           factor):
    block, element, _ = place(height, width, down, across, count)
    real = block < count
    low = tl.load(LOW).to(tl.float32)
    largest = tl.maximum(-low, tl.load(HIGH).to(tl.float32))
    step = tl.maximum(tl.load(NORM).to(tl.float32) * factor, largest * 1.52587890625e-05)
    step = tl.maximum(step, 3.0092655e-36)
    if tl.program_id(0) == 0:
        tl.store(NUMBERS, step)
        tl.store(NUMBERS + 1, tl.where(low >= 0, 1.0, 0.0))
    x = tl.load(X + element, mask=real[:, None], other=0.0).to(tl.float32)
    at = tl.arange(0, 64)
    matrix = tl.load(MATRIX + at[:, None] * 64 + at[None, :])
    t = tl.dot(x, matrix, input_precision="ieee") / step
    first = (at == 0)[None, :]
    t = tl.where((tl.abs(t) > 0.6) | first, tl.floor(t + 0.5), 0.0)
    q = tl.minimum(tl.maximum(t, -1048576.0), 1048576.0).to(tl.int32)
    folded = tl.where(q < 0, -2 * q - 1, 2 * q)
    mean = tl.sum(tl.where(first, folded, 0), axis=1)
    groups = tl.reshape(tl.where(first, 0, folded), (32, 8, 8))
    top = tl.max(groups, axis=2)
    code = tl.zeros((32, 8), tl.int32)
    for bits in tl.static_range(13):
        code += tl.where(top >= (1 << bits), 1, 0)
    code += tl.where(top >= 16384, 1, 0) + tl.where(top >= 131072, 1, 0)
    planes = width_of(code)
    lane = tl.arange(0, 8)
    groups_stored = tl.max(tl.where(code > 0, (lane + 1)[None, :], 0), axis=1)
    nonzero = tl.where(x != 0, 1, 0)
    total = tl.sum(nonzero, axis=1)
    mixed = tl.where((total > 0) & (total < 64), 1, 0)
    mean_bytes = tl.where(mean > 0, 1, 0) + tl.where(mean > 255, 1, 0)
    mean_bytes += tl.where(mean > 65535, 1, 0)
    half = (groups_stored + 1) // 2
    size = 1 + half + mean_bytes + 8 * mixed + tl.sum(planes, axis=1)
    size = tl.where(total > 0, size, 0)
    tl.store(SIZES + block, size.to(tl.uint8), mask=real)
    live = real & (size > 0)
    to = SLOTS + block * 184
    head = mixed + 2 * mean_bytes + 8 * groups_stored
    tl.store(to, head.to(tl.uint8), mask=live)
    pair = tl.arange(0, 2)
    nibbles = tl.sum(tl.reshape(code, (32, 4, 2)) << (4 * pair)[None, None, :], axis=2)
    quad = tl.arange(0, 4)
    stored = live[:, None] & (quad[None, :] < half[:, None])
    tl.store(to[:, None] + 1 + quad[None, :], nibbles.to(tl.uint8), mask=stored)
    to = to + 1 + half
    for k in tl.static_range(3):
        part = (mean >> (8 * k)) & 255
        tl.store(to + k, part.to(tl.uint8), mask=live & (mean_bytes > k))
    to = (to + mean_bytes)[:, None] + lane[None, :]
    bits_of = tl.sum(tl.reshape(nonzero, (32, 8, 8)) << lane[None, None, :], axis=2)
    tl.store(to, bits_of.to(tl.uint8), mask=live[:, None] & (mixed > 0)[:, None])
    to = to - lane[None, :] + 8 * mixed[:, None] + tl.cumsum(planes, axis=1) - planes
    most = tl.max(tl.max(planes, axis=1), axis=0)
    for k in range(most):
        byte = tl.sum(((groups >> k) & 1) << lane[None, None, :], axis=2)
        tl.store(to + k, byte.to(tl.uint8), mask=live[:, None] & (k < planes))


@triton.jit(do_not_specialize=["count"])
def move(SLOTS, SIZES, STARTS, DATA, count):
    block = tl.program_id(0).to(tl.int64) * 8 + tl.arange(0, 8)
    real = block < count
    size = tl.load(SIZES + block, mask=real, other=0).to(tl.int32)
    start = tl.load(STARTS + block, mask=real, other=0)
    at = tl.arange(0, 256)[None, :]
    stored = at < size[:, None]
    byte = tl.load(SLOTS + block[:, None] * 184 + at, mask=stored, other=0)
    tl.store(DATA + start[:, None] + at, byte, mask=stored)


@triton.jit(do_not_specialize=["count", "height", "width", "down", "across", "smallest", "most"])
def decode(DATA, SIZES, STARTS, NUMBERS, MATRIX, Y, count, height, width, down, across, smallest,
           most):
    block, element, inside = place(height, width, down, across, count)
    real = block < count
    step = tl.load(NUMBERS)
    least = tl.maximum(0.125 * step, smallest)
    positive = tl.load(NUMBERS + 1)
    lowest = tl.where(positive > 0, least, -most)
    below = tl.where(positive > 0, least, -least)
    live = tl.load(SIZES + block, mask=real, other=0).to(tl.int32) > 0
    start = tl.load(STARTS + block, mask=real, other=0)
    head = tl.load(DATA + start, mask=live, other=0).to(tl.int32)
    mixed, mean_bytes, groups_stored = head & 1, (head >> 1) & 3, head >> 3
    lane = tl.arange(0, 8)
    stored = lane[None, :] < groups_stored[:, None]
    pairs = tl.load(DATA + start[:, None] + 1 + (lane // 2)[None, :], mask=stored, other=0)
    code = (pairs.to(tl.int32) >> (4 * (lane % 2))[None, :]) & 15
    planes = width_of(tl.where(stored, code, 0))
    at = start + 1 + (groups_stored + 1) // 2
    mean = tl.zeros((32,), tl.int32)
    for k in tl.static_range(3):
        mean += tl.load(DATA + at + k, mask=mean_bytes > k, other=0).to(tl.int32) << (8 * k)
    at = (at + mean_bytes)[:, None] + lane[None, :]
    some = (mixed > 0)[:, None]
    mask = tl.load(DATA + at, mask=some & (lane >= 0)[None, :], other=0).to(tl.int32)
    nonzero = tl.reshape((mask[:, :, None] >> lane[None, None, :]) & 1, (32, 64)) > 0
    nonzero = (nonzero & some) | (live[:, None] & (mixed == 0)[:, None])
    at = at - lane[None, :] + 8 * mixed[:, None] + tl.cumsum(planes, axis=1) - planes
    groups = tl.zeros((32, 8, 8), tl.int32)
    last = tl.max(tl.max(planes, axis=1), axis=0)
    for k in range(last):
        byte = tl.load(DATA + at + k, mask=k < planes, other=0).to(tl.int32)
        groups |= ((byte[:, :, None] >> lane[None, None, :]) & 1) << k
    value = tl.arange(0, 64)
    folded = tl.reshape(groups, (32, 64))
    folded = tl.where((value == 0)[None, :], mean[:, None], folded)
    q = tl.where((folded & 1) > 0, -((folded + 1) >> 1), folded >> 1)
    matrix = tl.load(MATRIX + value[None, :] * 64 + value[:, None])
    y = tl.dot(q.to(tl.float32) * step, matrix, input_precision="ieee")
    small = (y < lowest) | (tl.abs(y) < smallest)
    y = tl.where(small, tl.where(y < 0, below, least), y)
    y = tl.minimum(tl.maximum(y, -most), most)
    tl.store(Y + element, tl.where(nonzero, y, 0.0).to(Y.dtype.element_ty), mask=inside)
"""


def encode(
    x: Tensor,
    planes: tuple[int, int, int],
    about: tuple[Tensor, Tensor, Tensor],
    factor: float,
    matrix: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return step and sign, a slot for each block, and the bytes used of each; see the module."""
    count, grid = _grid(planes)
    numbers = torch.empty(2, dtype=torch.float32, device=x.device)
    slots = torch.empty(count, 184, dtype=torch.uint8, device=x.device)
    sizes = torch.empty(count, dtype=torch.uint8, device=x.device)
    inputs = (x, *about, matrix, slots, sizes, numbers)
    _launch("encode", x, count, BLOCKS, *inputs, count, *grid, factor)
    return numbers, slots, sizes


def move(slots: Tensor, sizes: Tensor, starts: Tensor, data: Tensor) -> None:
    """Copy the used bytes of all slots to their places."""
    _launch("move", data, len(sizes), BLOCKS // 4, slots, sizes, starts, data, len(sizes))


def decode(
    data: Tensor,
    sizes: Tensor,
    starts: Tensor,
    numbers: Tensor,
    planes: tuple[int, int, int],
    bounds: tuple[float, float],
    matrix: Tensor,
    y: Tensor,
) -> None:
    """Decode all blocks into `y`, nonzero values to magnitudes within `bounds`."""
    count, grid = _grid(planes)
    inputs = (data, sizes, starts, numbers, matrix, y)
    _launch("decode", y, count, BLOCKS, *inputs, count, *grid, *bounds)


def _launch(name: str, like: Tensor, count: int, blocks: int, *arguments: Any) -> None:
    """Launch a kernel with a program for every `blocks` of `count` blocks."""
    kernel = getattr(load_triton(SOURCE), name)[(-(-count // blocks),)]
    with on_device(like):
        # With 4 warps, `encode` has 234 registers per thread for an H100; with 8 it has 101.
        kernel(*arguments, num_warps=8, enable_fp_fusion=True)


def _grid(planes: tuple[int, int, int]) -> tuple[int, tuple[int, int, int, int]]:
    """Return the number of blocks, and height and width in values and in blocks."""
    count, height, width = planes
    down, across = -(-height // 8), -(-width // 8)
    return count * down * across, (height, width, down, across)

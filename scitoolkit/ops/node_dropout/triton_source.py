"""Triton kernel of node dropout: one pass over the elements; the mask is never stored."""

from __future__ import annotations

import functools
from types import ModuleType

import torch
from torch import Tensor

from scitoolkit.ops.codegen import differentiable, load_triton, on_device
from scitoolkit.ops.node_dropout.reference import GOLDEN, MIX_1, MIX_2

BLOCK = 1024  # elements per program

SOURCE = f"""
import triton
import triton.language as tl


@triton.jit
def mix(z):
    z = (z ^ (z >> 30)) * {MIX_1}
    z = (z ^ (z >> 27)) * {MIX_2}
    return z ^ (z >> 31)


@triton.jit(do_not_specialize=["N", "seed", "threshold"])
def dropout(N, X, ROWS, SCALE, OUT, seed, threshold, W: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < N
    row = tl.load(ROWS + place // W, mask=inside, other=0)
    start = tl.full([BLOCK], 0, tl.int64) + seed
    begin = mix((row + 1).to(tl.uint64) * {GOLDEN} + start.to(tl.uint64))
    bits = mix(begin + (place % W + 1).to(tl.uint64) * {GOLDEN}) >> 40
    x = tl.load(X + place, mask=inside, other=0.0) * tl.load(SCALE)
    tl.store(OUT + place, tl.where(bits.to(tl.int64) >= threshold, x, 0.0), mask=inside)
"""


@functools.cache
def gpu_kernels(spec: str, dtype: torch.dtype) -> ModuleType:
    """Return the module of the kernel for both precisions; the spec is always empty."""
    return load_triton(SOURCE)


def _save(ctx, inputs, output) -> None:
    _, rows, *ctx.constants = inputs
    ctx.save_for_backward(rows)


def _backward(ctx, grad):
    return gpu_node_dropout(grad, *ctx.saved_tensors, *ctx.constants), None, None, None, None


@differentiable(
    "node_dropout_triton",
    fake=lambda x, rows, seed, threshold, scale: torch.empty_like(x),
    setup_context=_save,
    backward=_backward,
)
def gpu_node_dropout(x: Tensor, rows: Tensor, seed: int, threshold: int, scale: float) -> Tensor:
    """Return x with some elements zeroed and the others scaled; linear in x."""
    x = x.contiguous()
    out, factor = torch.empty_like(x), x.new_full((1,), scale)
    if x.numel():
        with on_device(x):
            gpu_kernels("", x.dtype).dropout[(-(-x.numel() // BLOCK),)](
                *(x.numel(), x, rows, factor, out, seed, threshold),
                W=x.shape[1],
                BLOCK=BLOCK,
                enable_fp_fusion=False,
            )
    return out

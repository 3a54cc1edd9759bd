"""The public function; the mask is made anew in the backward pass instead of being stored."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.ops.codegen import call, load_library
from scitoolkit.ops.node_dropout import reference

_SOURCE = """
#include <stdint.h>
typedef {real} real;
static inline uint64_t mix(uint64_t z) {{
  z = (z ^ (z >> 30)) * {mix_1}ull;
  z = (z ^ (z >> 27)) * {mix_2}ull;
  return z ^ (z >> 31);
}}
void node_dropout(int64_t rows, int64_t width, const int64_t *restrict row, int64_t seed,
                  int64_t threshold, const real *restrict scale, const real *restrict x,
                  real *restrict out, int64_t threads) {{
  #pragma omp parallel for num_threads(threads) if(threads > 1)
  for (int64_t i = 0; i < rows; ++i) {{
    const uint64_t begin = mix(((uint64_t)row[i] + 1) * {golden}ull + (uint64_t)seed);
    for (int64_t k = 0; k < width; ++k) {{
      const int64_t bits = mix(begin + (uint64_t)(k + 1) * {golden}ull) >> 40;
      out[i * width + k] = bits >= threshold ? x[i * width + k] * *scale : (real)0;
    }}
  }}
}}
"""
_REAL = {torch.float32: "float", torch.float64: "double"}


@functools.cache
def _library(dtype: torch.dtype) -> ctypes.CDLL | None:
    source = _SOURCE.format(
        real=_REAL[dtype], golden=reference.GOLDEN, mix_1=reference.MIX_1, mix_2=reference.MIX_2
    )
    try:
        return load_library(source)
    except BackendError:
        return None


def _apply(x: Tensor, rows: Tensor, seed: int, threshold: int, scale: float) -> Tensor:
    library = _library(x.dtype) if x.dtype in _REAL and x.device.type == "cpu" else None
    if library is None:
        return reference.node_dropout(x, rows, seed, threshold, scale)
    x = x.contiguous()
    out = torch.empty_like(x)
    factor = torch.tensor(scale, dtype=x.dtype)
    call(
        library.node_dropout, *x.shape, rows, reference.signed(seed), threshold, factor, x, out,
        torch.get_num_threads(),
    )  # fmt: skip
    return out


class _NodeDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rows, seed, threshold, scale):
        ctx.save_for_backward(rows)
        ctx.rest = seed, threshold, scale
        return _apply(x, rows, seed, threshold, scale)

    @staticmethod
    def backward(ctx, g):
        return _NodeDropout.apply(g, *ctx.saved_tensors, *ctx.rest), None, None, None, None


def node_dropout(x: Tensor, rows: Tensor, p: float, seed: int) -> Tensor:
    """Zero each number with probability p and scale the others by 1 / (1 - p).

    Whether a number is dropped depends on (seed, row number, column) alone, so the rows of a
    matrix may lie on any processes in any order.

    Args:
        x: shape (n, width), float32 or float64.
        rows: number of each row in the whole matrix, shape (n,), int64.
        p: probability, in [0, 1); resolved to 2^-24.
        seed: any integer; another one for every call of a training.

    Raises:
        ConfigError: p out of range.
        DataError: rows that do not fit x.

    Example:
        >>> x = torch.ones(4, 6)
        >>> whole = node_dropout(x, torch.arange(4), 0.5, seed=3)
        >>> part = node_dropout(x[:2], torch.tensor([3, 1]), 0.5, seed=3)
        >>> bool((part == whole[[3, 1]]).all())
        True
    """
    if not 0 <= p < 1:
        raise ConfigError(f"dropout p={p}", allowed="0 <= p < 1")
    if x.ndim != 2 or tuple(rows.shape) != (x.shape[0],):
        raise DataError(f"x of shape {tuple(x.shape)} with {tuple(rows.shape)} row numbers")
    return _NodeDropout.apply(x, rows, seed, round(p * 2**24), 1.0 / (1.0 - p))

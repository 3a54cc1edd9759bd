"""CPU kernels of additive attention (GATv2): one pass over the nonzeros forward, two backward."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from scitoolkit.ops.attention.cpu import kernels as kernels_of
from scitoolkit.ops.attention.cpu import scalar, source_of, spec_of
from scitoolkit.ops.codegen import call, empty

SOURCE = "additive.c"
ROWS_PER_TASK = 64  # as in softmax.c


@functools.cache
def kernels(spec: str, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels of `<heads>x<width>`, compiled on first use.

    Raises:
        BackendError: no compiler, or a compiler error.
    """
    return kernels_of(spec, dtype, SOURCE)


def source(spec: str, dtype: torch.dtype) -> str:
    """Return the C source of the kernels of `<heads>x<width>`."""
    return source_of(spec, dtype, SOURCE)


def run_attention(
    pointer: Tensor, column: Tensor, left: Tensor, x: Tensor, vector: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """Return the output, and the logarithm of each row's sum of exp(score)."""
    out, norm = empty(left.shape, left), left.new_empty(left.shape[:2])
    call(
        kernels(spec_of(x), x.dtype).attention,
        len(left),
        pointer,
        column,
        left,
        x,
        vector,
        scalar(slope, x),
        out,
        norm,
        torch.get_num_threads(),
    )
    return out, norm


def run_attention_backward(
    pointer: Tensor,
    column: Tensor,
    t_pointer: Tensor,
    t_column: Tensor,
    left: Tensor,
    x: Tensor,
    vector: Tensor,
    out: Tensor,
    norm: Tensor,
    grad: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with respect to left, x and vector."""
    library, factor, threads = (
        kernels(spec_of(x), x.dtype),
        scalar(slope, x),
        torch.get_num_threads(),
    )
    by_left, by_x, mean = empty(left.shape, x), empty(x.shape, x), torch.empty_like(norm)
    by_vector = x.new_empty(-(-len(left) // ROWS_PER_TASK), *vector.shape)
    call(
        library.attention_rows,
        len(left),
        pointer,
        column,
        left,
        x,
        vector,
        factor,
        out,
        norm,
        grad,
        mean,
        by_left,
        by_vector,
        threads,
    )
    call(
        library.attention_columns,
        len(x),
        t_pointer,
        t_column,
        left,
        x,
        vector,
        factor,
        norm,
        mean,
        grad,
        by_x,
        threads,
    )
    return by_left, by_x, by_vector.sum(0)

"""The kernels of graph attention: two passes over the nonzeros a training step, none stored.

LeakyReLU' is 1 above 0 and `slope` below, and the derivatives of a row's scores add up to zero. So
the derivative by `left` needs no sum over nonzeros: it is (1 - slope) times
<g, sum over positive scores of a x> - <g, y> (sum over positive scores of a), whose sums the
forward pass has at hand.
"""

from __future__ import annotations

import ctypes
import functools
import math

import torch
from torch import Tensor

from scitoolkit.ops.codegen import REAL, call, empty, load_library
from scitoolkit.ops.codegen.compile import read

VECTOR_BYTES = 32
BLOCK = 16  # nonzeros whose rows are in cache at a time


@functools.cache
def kernels(spec: str, dtype: torch.dtype, source: str = "attention.c") -> ctypes.CDLL:
    """Return the loaded kernels of `<heads>x<width>`, compiled on first use.

    Raises:
        BackendError: no compiler, or one that fails.
    """
    heads, width = map(int, spec.split("x"))
    # A vector must not reach into the next head.
    lanes = math.gcd(width, VECTOR_BYTES // dtype.itemsize)
    constants = {
        "HEADS": heads, "WIDTH": width, "LANES": lanes, "BLOCK": BLOCK,
        "IS_DOUBLE": int(dtype == torch.float64),
    }  # fmt: skip
    lines = [f"#define {name} {value}" for name, value in constants.items()]
    head = "\n".join([f"typedef {REAL[dtype]} real;", *lines])
    return load_library(f"{head}\n{read(__file__, 'softmax.c')}\n{read(__file__, source)}")


def spec_of(x: Tensor) -> str:
    """Return what the kernels of x, shape (columns, heads, width), are generated for."""
    return f"{x.shape[1]}x{x.shape[2]}"


def scalar(number: float, like: Tensor) -> Tensor:
    """Return a number that C reads through a pointer."""
    return torch.tensor(number, dtype=like.dtype)


def run_attention(
    pointer: Tensor, column: Tensor, left: Tensor, right: Tensor, x: Tensor, slope: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the output, log of the sum of exp(score), and both sums over positive scores."""
    out = empty((left.shape[0], *x.shape[1:]), x)
    norm, positive, share = torch.empty_like(left), empty(out.shape, x), torch.empty_like(left)
    call(
        kernels(spec_of(x), x.dtype).attention, len(left), pointer, column, left, right, x,
        scalar(slope, x), out, norm, positive, share, torch.get_num_threads(),
    )  # fmt: skip
    return out, norm, positive, share


def run_attention_backward(
    t_pointer: Tensor, t_column: Tensor, left: Tensor, right: Tensor, x: Tensor,
    out: Tensor, norm: Tensor, positive: Tensor, share: Tensor, grad: Tensor, slope: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients by left, right and x."""
    rows, columns, factor, threads = (
        len(left),
        len(right),
        scalar(slope, x),
        torch.get_num_threads(),
    )
    by_left, by_right, by_x = torch.empty_like(left), torch.empty_like(right), empty(x.shape, x)
    of_rows = empty((rows, 3 * left.shape[1]), x)  # left, norm and <g, y> side by side
    library = kernels(spec_of(x), x.dtype)
    call(
        library.attention_rows, rows, left, out, norm, positive, share, grad, factor, of_rows,
        by_left, threads,
    )  # fmt: skip
    call(
        library.attention_columns, columns, t_pointer, t_column, right, x, of_rows, grad, factor,
        by_right, by_x, threads,
    )  # fmt: skip
    return by_left, by_right, by_x

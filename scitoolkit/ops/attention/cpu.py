"""CPU kernels of graph attention: two passes over the nonzeros per training step.

LeakyReLU' is 1 above 0 and `slope` below, and the derivatives with respect to the scores of a row
sum to zero. The derivative with respect to `left` therefore needs no sum over nonzeros in the
backward pass: it is (1 - slope) times
<g, sum over positive scores of a x> - <g, y> (sum over positive scores of a), where the forward
pass returns both sums.
"""

from __future__ import annotations

import ctypes
import functools
import math

import torch
from torch import Tensor

from scitoolkit.ops.codegen import REAL, call, empty, load_library
from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.codegen.emit import banner

VECTOR_BYTES = 32
BLOCK = 16  # nonzeros per block, whose rows stay in cache


@functools.cache
def kernels(spec: str, dtype: torch.dtype, source: str = "attention.c") -> ctypes.CDLL:
    """Return the loaded kernels of `<heads>x<width>`, compiled on first use.

    Raises:
        BackendError: no compiler, or a compiler error.
    """
    return load_library(source_of(spec, dtype, source))


def source_of(spec: str, dtype: torch.dtype, source: str = "attention.c") -> str:
    """Return the C source of the kernels of `<heads>x<width>`."""
    heads, width = map(int, spec.split("x"))
    # Vectors must not cross the boundary between heads.
    lanes = math.gcd(width, VECTOR_BYTES // dtype.itemsize)
    constants = {
        "HEADS": heads,
        "WIDTH": width,
        "LANES": lanes,
        "BLOCK": BLOCK,
        "IS_DOUBLE": int(dtype == torch.float64),
    }
    lines = [f"#define {name} {value}" for name, value in constants.items()]
    kind = source.removesuffix(".c").replace("attention", "graph")
    title = banner(f"{kind} attention, {heads} heads of {width} columns, {REAL[dtype]}")
    head = "\n".join([title, f"typedef {REAL[dtype]} real;", *lines])
    return f"{head}\n{read(__file__, 'softmax.c')}\n{read(__file__, source)}"


def spec_of(x: Tensor) -> str:
    """Return the spec `<heads>x<width>` of the kernels for x, shape (columns, heads, width)."""
    return f"{x.shape[1]}x{x.shape[2]}"


def scalar(number: float, like: Tensor) -> Tensor:
    """Return a number as a tensor, which C reads through a pointer."""
    return torch.tensor(number, dtype=like.dtype)


def run_attention(
    pointer: Tensor, column: Tensor, left: Tensor, right: Tensor, x: Tensor, slope: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the output, log(sum of exp(score)), and both sums over positive scores."""
    out = empty((left.shape[0], *x.shape[1:]), x)
    norm, positive, share = torch.empty_like(left), empty(out.shape, x), torch.empty_like(left)
    call(
        kernels(spec_of(x), x.dtype).attention,
        len(left),
        pointer,
        column,
        left,
        right,
        x,
        scalar(slope, x),
        out,
        norm,
        positive,
        share,
        torch.get_num_threads(),
    )
    return out, norm, positive, share


def run_attention_backward(
    t_pointer: Tensor,
    t_column: Tensor,
    left: Tensor,
    right: Tensor,
    x: Tensor,
    out: Tensor,
    norm: Tensor,
    positive: Tensor,
    share: Tensor,
    grad: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with respect to left, right and x."""
    rows, columns, factor, threads = (
        len(left),
        len(right),
        scalar(slope, x),
        torch.get_num_threads(),
    )
    by_left, by_right, by_x = torch.empty_like(left), torch.empty_like(right), empty(x.shape, x)
    of_rows = empty((rows, 3 * left.shape[1]), x)  # left, norm and <g, y> of each row
    library = kernels(spec_of(x), x.dtype)
    call(
        library.attention_rows,
        rows,
        left,
        out,
        norm,
        positive,
        share,
        grad,
        factor,
        of_rows,
        by_left,
        threads,
    )
    call(
        library.attention_columns,
        columns,
        t_pointer,
        t_column,
        right,
        x,
        of_rows,
        grad,
        factor,
        by_right,
        by_x,
        threads,
    )
    return by_left, by_right, by_x

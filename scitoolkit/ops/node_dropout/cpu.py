"""CPU kernel of node dropout: one pass over the rows; the mask is never stored."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from scitoolkit.ops.codegen import REAL, call, differentiable, load_library
from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.codegen.emit import banner
from scitoolkit.ops.node_dropout import reference


@functools.cache
def kernels(spec: str, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernel, compiled on first use; the spec is always empty.

    Raises:
        BackendError: no compiler, or a compiler error.
    """
    return load_library(source(spec, dtype))


def source(spec: str, dtype: torch.dtype) -> str:
    """Return the C source of the kernel."""
    constants = {"GOLDEN": reference.GOLDEN, "MIX_1": reference.MIX_1, "MIX_2": reference.MIX_2}
    lines = [f"#define {name} {value}ull" for name, value in constants.items()]
    title = banner(f"node dropout, {REAL[dtype]}")
    head = "\n".join([title, f"typedef {REAL[dtype]} real;", *lines])
    return f"{head}\n{read(__file__, 'node_dropout.c')}"


def _save(ctx, inputs, output) -> None:
    _, rows, *ctx.constants = inputs
    ctx.save_for_backward(rows)


def _backward(ctx, grad):
    return node_dropout(grad, *ctx.saved_tensors, *ctx.constants), None, None, None, None


@differentiable(
    "node_dropout",
    fake=lambda x, rows, seed, threshold, scale: torch.empty_like(x),
    setup_context=_save,
    backward=_backward,
)
def node_dropout(x: Tensor, rows: Tensor, seed: int, threshold: int, scale: float) -> Tensor:
    """Return x with some elements zeroed and the others scaled; linear in x."""
    x = x.contiguous()
    out, factor = torch.empty_like(x), torch.tensor(scale, dtype=x.dtype)
    function = kernels("", x.dtype).node_dropout
    call(function, *x.shape, rows, seed, threshold, factor, x, out, torch.get_num_threads())
    return out

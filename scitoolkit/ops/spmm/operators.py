"""Registered torch operators: product and sampled product, each the derivative of the other.

The gradient of A x with respect to x is A^T g, a product with the transposed pattern; that with
respect to the values of A is g x^T at its pattern, the sampled product. The gradients of the
sampled product are products. Hence both can be differentiated any number of times. Kernels in C and
in Triton have the same derivatives.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from scitoolkit.ops.codegen import REAL, call, differentiable, empty, load_library
from scitoolkit.ops.spmm import cpu, triton_kernels

MAX_WIDTH = 1 << 20


@functools.lru_cache(maxsize=256)
def kernels(width: str, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels of a width, compiled on first use.

    Raises:
        BackendError: no compiler, or a compiler error.
    """
    return load_library(source(width, dtype))


def source(width: str, dtype: torch.dtype) -> str:
    """Return the C source of the kernels of a width.

    Raises:
        ValueError: not a number, or more columns than unrolled code has room for.
    """
    if int(width) > MAX_WIDTH:
        raise ValueError(f"{width} columns, at most {MAX_WIDTH} are supported")
    return cpu.generate(max(1, int(width)), REAL[dtype])


def run_product(
    pointer: Tensor, column: Tensor, value: Tensor | None, x: Tensor, into: Tensor | None = None
) -> Tensor:
    """Call the kernel without recording a derivative; the product is added to `into` if given."""
    out = empty((len(pointer) - 1, x.shape[1]), x) if into is None else into
    none = x.new_empty(0)
    call(
        kernels(str(x.shape[1]), x.dtype).spmm,
        len(pointer) - 1,
        pointer,
        column,
        none if value is None else value,
        x,
        none,
        out,
        int(into is not None),
        torch.get_num_threads(),
    )
    return out


def run_sampled(pointer: Tensor, column: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return the inner products of rows of `left` and `right` at the nonzeros, shape (nnz,)."""
    out = left.new_empty(len(column))
    call(
        kernels(str(left.shape[1]), left.dtype).sddmm,
        len(pointer) - 1,
        pointer,
        column,
        left,
        right,
        out,
        torch.get_num_threads(),
    )
    return out


def _fake_product(pointer, column, t_pointer, t_column, order, value, x):
    return x.new_empty(pointer.shape[0] - 1, x.shape[1])


def _fake_sampled(pointer, column, t_pointer, t_column, order, left, right):
    return left.new_empty(column.shape[0])


def _save(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _swapped(pointer, column, t_pointer, t_column, order):
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=order.device)
    return t_pointer, t_column, pointer, column, inverse


def _operators(suffix: str, product: Callable, sampled: Callable) -> tuple[Callable, Callable]:
    """Register both operators of given kernels, each as the derivative of the other."""

    def backward_of_product(ctx, grad):
        *pattern, value, x = ctx.saved_tensors
        grad = grad.contiguous()
        wants_value, wants_x = ctx.needs_input_grad[5:]
        by_value = sddmm(*pattern, grad, x) if wants_value else None
        by_x = None
        if wants_x:
            by_x = spmm(*_swapped(*pattern), None if value is None else value[pattern[4]], grad)
        return (None, None, None, None, None, by_value, by_x)

    def backward_of_sampled(ctx, grad):
        *pattern, left, right = ctx.saved_tensors
        grad = grad.contiguous()
        wants_left, wants_right = ctx.needs_input_grad[5:]
        by_left = spmm(*pattern, grad, right) if wants_left else None
        by_right = spmm(*_swapped(*pattern), grad[pattern[4]], left) if wants_right else None
        return (None, None, None, None, None, by_left, by_right)

    @differentiable(
        f"spmm{suffix}", fake=_fake_product, setup_context=_save, backward=backward_of_product
    )
    def spmm(
        pointer: Tensor,
        column: Tensor,
        t_pointer: Tensor,
        t_column: Tensor,
        order: Tensor,
        value: Tensor | None,
        x: Tensor,
    ) -> Tensor:
        """Return sparse (rows, columns) times dense (columns, width)."""
        return product(pointer, column, value, x)

    @differentiable(
        f"sddmm{suffix}", fake=_fake_sampled, setup_context=_save, backward=backward_of_sampled
    )
    def sddmm(
        pointer: Tensor,
        column: Tensor,
        t_pointer: Tensor,
        t_column: Tensor,
        order: Tensor,
        left: Tensor,
        right: Tensor,
    ) -> Tensor:
        """Return the inner products of rows of `left` and `right` at the nonzeros."""
        return sampled(pointer, column, left, right)

    return spmm, sddmm


spmm, sddmm = _operators("", run_product, run_sampled)
gpu_spmm, gpu_sddmm = _operators("_triton", triton_kernels.run_product, triton_kernels.run_sampled)

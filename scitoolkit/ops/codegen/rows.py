"""Operators whose rows are independent: input (E, a) to output (E, b), twice differentiable."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor

from scitoolkit.ops.codegen.gpu import on_device
from scitoolkit.ops.codegen.operator import call, eager, is_eager, operator

GPU_ROWS = 128  # rows of one program in Triton, one of a thread


def run_compiled(library: ctypes.CDLL, name: str, x: Tensor, *others: Tensor) -> None:
    """Run one of the three functions of a library in C."""
    call(getattr(library, name), x.shape[0], x, *others, torch.get_num_threads())


def run_triton(module: ModuleType, name: str, x: Tensor, *others: Tensor) -> None:
    """Run one of the three kernels of a module in Triton, blocks of rows at a time."""
    programs = -(-x.shape[0] // GPU_ROWS)
    if programs:
        with on_device(x):
            getattr(module, name)[(programs,)](
                x.shape[0], x, *others, num_warps=GPU_ROWS // 32, enable_fp_fusion=True
            )


def row_operator(
    name: str,
    kernels: Callable[[str, torch.dtype], ctypes.CDLL | ModuleType],
    dim_out: Callable[[str], int],
    run: Callable[..., None] = run_compiled,
) -> Callable[[Tensor, str], Tensor]:
    """Register forward, backward and double backward of an operation on independent rows.

    The library has three functions over N rows, all contiguous:
    `forward(N, X, Z, threads)`, `backward(N, X, G, GX, threads)` and
    `double_backward(N, X, G, DX, GG, GX, threads)`, where DX is the cotangent of GX and the last
    gives the gradients of <DX, GX> with respect to G and X.

    Plain tensors go through `torch.autograd.Function`, which costs half of what a registered
    operator does; torch.compile, export and function transforms see the operator.

    Args:
        name: name of the operator inside the namespace `scitoolkit`.
        kernels: `kernels(spec, dtype)` returns the loaded library.
        dim_out: columns of the output for a spec.
        run: `run(library, function, x, *others)`; with `run_triton` the library is a module of
            kernels with these arguments, but for the threads.

    Returns:
        The function of (rows, spec), with the registered operator as its attribute `operator`.
    """

    def run_forward(x: Tensor, spec: str) -> Tensor:
        out = x.new_empty(x.shape[0], dim_out(spec))
        run(kernels(spec, x.dtype), "forward", x, out)
        return out

    def run_backward(grad: Tensor, x: Tensor, spec: str) -> Tensor:
        gx = torch.empty_like(x)
        run(kernels(spec, x.dtype), "backward", x, grad, gx)
        return gx

    def run_double(dx: Tensor, grad: Tensor, x: Tensor, spec: str) -> tuple[Tensor, Tensor]:
        ggrad, gx = torch.empty_like(grad), torch.empty_like(x)
        run(kernels(spec, x.dtype), "double_backward", x, grad, dx, ggrad, gx)
        return ggrad, gx

    registered = _registered(name, run_forward, run_backward, run_double, dim_out)
    plain = _plain(run_forward, run_backward, run_double)

    def apply(x: Tensor, spec: str) -> Tensor:
        return plain(x, spec) if is_eager(x) else registered(x, spec)

    apply.operator = registered
    return apply


def _save(ctx, inputs, output) -> None:
    *tensors, ctx.spec = inputs
    ctx.save_for_backward(*tensors)


def _registered(name: str, run_forward, run_backward, run_double, dim_out) -> Callable:
    double_backward = operator(
        f"{name}_double_backward",
        fake=lambda dx, grad, x, spec: (torch.empty_like(grad), torch.empty_like(x)),
    )(run_double)

    def backward_of_backward(ctx, dx):
        return *double_backward(dx.contiguous(), *ctx.saved_tensors, ctx.spec), None

    backward = operator(
        f"{name}_backward",
        fake=lambda grad, x, spec: torch.empty_like(x),
        setup_context=_save,
        backward=backward_of_backward,
    )(run_backward)

    def backward_of_forward(ctx, grad):
        return backward(grad.contiguous(), *ctx.saved_tensors, ctx.spec), None

    return operator(
        name,
        fake=lambda x, spec: x.new_empty(x.shape[0], dim_out(spec)),
        setup_context=_save,
        backward=backward_of_forward,
    )(run_forward)


def _plain(run_forward, run_backward, run_double) -> Callable:
    @torch.autograd.function.once_differentiable
    def backward_of_backward(ctx, dx):
        return *run_double(dx.contiguous(), *ctx.saved_tensors, ctx.spec), None

    backward = eager(run_backward, _save, backward_of_backward)

    def backward_of_forward(ctx, grad):
        return backward(grad.contiguous(), *ctx.saved_tensors, ctx.spec), None

    return eager(run_forward, _save, backward_of_forward)

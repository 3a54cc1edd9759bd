"""Operations on independent rows: input (E, a) to output (E, b), twice differentiable."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from scitoolkit.ops.codegen.backends import GeneratedC, Triton
from scitoolkit.ops.codegen.compile import load_library
from scitoolkit.ops.codegen.dispatch import Operation
from scitoolkit.ops.codegen.dtypes import REAL
from scitoolkit.ops.codegen.gpu import load_triton, on_device
from scitoolkit.ops.codegen.registration import call, differentiable

GPU_ROWS = 128  # rows per Triton program, one per thread


def run_compiled(library: ctypes.CDLL, name: str, x: Tensor, *others: Tensor) -> None:
    """Call one of the three functions of a C library."""
    call(getattr(library, name), x.shape[0], x, *others, torch.get_num_threads())


def run_triton(module: ModuleType, name: str, x: Tensor, *others: Tensor) -> None:
    """Launch one of the three kernels of a Triton module, one program per block of rows."""
    programs = -(-x.shape[0] // GPU_ROWS)
    if programs:
        with on_device(x):
            getattr(module, name)[(programs,)](
                x.shape[0], x, *others, num_warps=GPU_ROWS // 32, enable_fp_fusion=True
            )


class RowOperation(Operation):
    """An operation on independent rows with generated kernels in C and Triton.

    The C library has three functions of N contiguous rows: `forward(N, X, Z, threads)`,
    `backward(N, X, G, GX, threads)` and `double_backward(N, X, G, DX, GG, GX, threads)`. The last
    one computes the gradients of <DX, GX> with respect to G and X, where DX is the cotangent of
    GX. The Triton kernels have the same arguments without the threads. All implementations are
    called as `run(rows, spec)`.

    Args:
        name: name of the operator inside the namespace `scitoolkit`.
        summary: one line for the table of operations.
        parse: returns the spec of its text.
        dim_out: returns the number of output columns of a spec's text.
        reference: `reference(spec, rows)` in torch.
        c_source: `c_source(spec, real)` returns the C source.
        triton_source: `triton_source(spec)` returns the Triton source for both precisions.
        examples: see `Operation`.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        *,
        parse: Callable[[str], Any],
        dim_out: Callable[[str], int],
        reference: Callable[[Any, Tensor], Tensor],
        c_source: Callable[[Any, str], str],
        triton_source: Callable[[Any], str],
        examples: str,
    ) -> None:
        @torch.compiler.assume_constant_result
        def constant(text: str) -> Any:
            return parse(text)

        super().__init__(
            name, summary, lambda rows, text: reference(constant(text), rows), 2, examples
        )

        def source(text: str, dtype: torch.dtype) -> str:
            return c_source(parse(text), REAL[dtype])

        @functools.lru_cache(maxsize=64)
        def library(text: str, dtype: torch.dtype) -> ctypes.CDLL:
            return load_library(source(text, dtype))

        @functools.lru_cache(maxsize=64)
        def module(text: str, dtype: torch.dtype) -> ModuleType:
            return load_triton(triton_source(parse(text)))

        on_cpu = row_operator(name, library, dim_out)
        on_gpu = row_operator(f"{name}_triton", module, dim_out, run_triton)
        GeneratedC.serve(name, prepare=library, source=source)(on_cpu)
        Triton.serve(name, prepare=module)(on_gpu)

    def __call__(self, text: str, rows: Tensor, backend: str) -> Tensor:
        """Return the output (E, b) for rows (E, a), computed by the selected backend."""
        return self.choose(text, rows, backend)(rows.contiguous(), text)


def row_operator(
    name: str,
    kernels: Callable[[str, torch.dtype], ctypes.CDLL | ModuleType],
    dim_out: Callable[[str], int],
    run: Callable[..., None] = run_compiled,
) -> Callable[[Tensor, str], Tensor]:
    """Register forward, backward and double backward of an operation on independent rows.

    Args:
        name: name of the operator inside the namespace `scitoolkit`.
        kernels: `kernels(spec, dtype)` returns the loaded library or module, see `RowOperation`.
        dim_out: returns the number of output columns of a spec.
        run: `run(library, function, x, *others)`, either `run_compiled` or `run_triton`.

    Returns:
        The function of (rows, spec), with the registered operator as attribute `operator`.
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

    double_backward = differentiable(
        f"{name}_double_backward",
        fake=lambda dx, grad, x, spec: (torch.empty_like(grad), torch.empty_like(x)),
    )(run_double)

    def backward_of_backward(ctx, dx):
        return *double_backward(dx.contiguous(), *ctx.saved_tensors, ctx.spec), None

    backward = differentiable(
        f"{name}_backward",
        fake=lambda grad, x, spec: torch.empty_like(x),
        setup_context=_save,
        backward=backward_of_backward,
    )(run_backward)

    def backward_of_forward(ctx, grad):
        return backward(grad.contiguous(), *ctx.saved_tensors, ctx.spec), None

    return differentiable(
        name,
        fake=lambda x, spec: x.new_empty(x.shape[0], dim_out(spec)),
        setup_context=_save,
        backward=backward_of_forward,
    )(run_forward)


def _save(ctx, inputs, output) -> None:
    *tensors, ctx.spec = inputs
    ctx.save_for_backward(*tensors)

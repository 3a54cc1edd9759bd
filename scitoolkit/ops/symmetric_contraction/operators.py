"""Registered torch operators of the symmetric contraction, with first and second derivatives.

The argument `want_weight` selects whether gradients of the weights are computed. The GPU kernels
take the polynomial's coefficients instead of the weights; the result is linear in both, so that the
operators are the same.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scitoolkit.ops.codegen import (
    REAL,
    call,
    differentiable,
    load_generated,
)
from scitoolkit.ops.codegen.compile import FLAGS
from scitoolkit.ops.symmetric_contraction import cpu, triton_launch
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec, polynomial

# The source has thousands of straight-line vector operations. The disabled passes would take as
# long as all others together and gain nothing.
LIGHT_PASSES = ("-O1", "-fno-tree-fre", "-fno-tree-dse", "-fno-dse")
LIGHT_FLAGS = (*LIGHT_PASSES, *FLAGS[1:])


@functools.lru_cache(maxsize=64)
def kernels(spec: str, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels of a spec, compiled on first use.

    Raises:
        BackendError: no compiler, or a compiler error.
    """
    return load_generated(_source, spec, REAL[dtype], flags=LIGHT_FLAGS)


def _source(spec: str, real: str) -> str:
    return cpu.generate(ContractionSpec.from_json(spec), real)


def source(spec: str, dtype: torch.dtype) -> str:
    """Return the C source of the kernels of a spec."""
    return _source(spec, REAL[dtype])


def _run_compiled(
    name: str, spec: str, x: Tensor, weight: Tensor, ptr: Tensor, order: Tensor, *rest: Tensor
) -> None:
    function = getattr(kernels(spec, x.dtype), name)
    sizes = weight.shape[0], weight.shape[2]
    call(function, *sizes, ptr, order, x, weight, *rest, torch.get_num_threads())


@functools.lru_cache(maxsize=64)
def _mixing_matrix(spec: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    rows = polynomial(ContractionSpec.from_json(spec))
    paths = ContractionSpec.from_json(spec).num_paths
    matrix = torch.zeros(len(rows.monomials), paths, dtype=torch.float64)
    matrix[torch.as_tensor(rows.rows), torch.as_tensor(rows.paths)] = torch.as_tensor(rows.values)
    return matrix.to(device, dtype)


@torch.compiler.assume_constant_result
def _mixing(spec: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the coefficient of each row per unit of weight, shape (rows, paths)."""
    return _mixing_matrix(spec, dtype, device)


def contraction_on_gpu(x: Tensor, weight: Tensor, ptr: Tensor, order: Tensor, spec: str) -> Tensor:
    """Return the contraction of each node by the Triton kernels, shape (N, dim_out, C)."""
    coefficients = _mixing(spec, x.dtype, x.device) @ weight
    return gpu_forward(x, coefficients, ptr, order, spec)


def _like_weight(weight: Tensor, want_weight: bool) -> Tensor:
    return torch.empty_like(weight) if want_weight else weight.new_empty(0)


def _fake_double(dx, grad, x, weight, ptr, order, spec, want_weight):
    return torch.empty_like(grad), torch.empty_like(x), _like_weight(weight, want_weight)


def _fake_backward(grad, x, weight, ptr, order, spec, want_weight):
    return torch.empty_like(x), _like_weight(weight, want_weight)


def _save_backward(ctx, inputs, output) -> None:
    ctx.set_materialize_grads(False)
    *tensors, ctx.spec, _ = inputs
    ctx.save_for_backward(*tensors)


def _sum(*parts: Tensor | None) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return functools.reduce(torch.add, present) if present else None


def _save_forward(ctx, inputs, output) -> None:
    *tensors, ctx.spec = inputs
    ctx.save_for_backward(*tensors)


def _operators(name: str, run: Callable[..., None]) -> Callable:
    """Register the operators of given kernels and return that of the forward pass."""

    @differentiable(f"{name}_double_backward", fake=_fake_double)
    def double_backward(
        dx: Tensor,
        grad: Tensor,
        x: Tensor,
        weight: Tensor,
        ptr: Tensor,
        order: Tensor,
        spec: str,
        want_weight: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of <dx, gx> with respect to (grad, x, weight)."""
        ggrad, gx, gw = _fake_double(dx, grad, x, weight, ptr, order, spec, want_weight)
        arguments = (spec, x, weight, ptr, order, grad, dx)
        run("double_backward", *arguments, ggrad, gx)
        if want_weight:
            run("double_backward_weight", *arguments, gw)
        return ggrad, gx, gw

    def _backward_of_backward(ctx, dx, dw):
        """Differentiate the backward pass.

        The result is linear in the weights: their cotangent dw enters by a forward and a backward
        pass with dw as weights.
        """
        grad, x, weight, ptr, order = ctx.saved_tensors
        ggrad = gx = gw = ggrad_dw = gx_dw = None
        if dx is not None:
            want = ctx.needs_input_grad[2]
            ggrad, gx, gw = double_backward(
                dx.contiguous(), grad, x, weight, ptr, order, ctx.spec, want
            )
            gw = gw if want else None
        if dw is not None and dw.numel():
            dw = dw.contiguous()
            ggrad_dw = forward(x, dw, ptr, order, ctx.spec)
            gx_dw, _ = backward(grad, x, dw, ptr, order, ctx.spec, False)
        return _sum(ggrad, ggrad_dw), _sum(gx, gx_dw), gw, None, None, None, None

    @differentiable(
        f"{name}_backward",
        fake=_fake_backward,
        setup_context=_save_backward,
        backward=_backward_of_backward,
    )
    def backward(
        grad: Tensor,
        x: Tensor,
        weight: Tensor,
        ptr: Tensor,
        order: Tensor,
        spec: str,
        want_weight: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients with respect to (x, weight), the latter empty if not wanted."""
        gx, gw = _fake_backward(grad, x, weight, ptr, order, spec, want_weight)
        arguments = (spec, x, weight, ptr, order, grad)
        run("backward", *arguments, gx)
        if want_weight:
            run("backward_weight", *arguments, gw)
        return gx, gw

    def _backward_of_forward(ctx, grad):
        want = ctx.needs_input_grad[1]
        gx, gw = backward(grad.contiguous(), *ctx.saved_tensors, ctx.spec, want)
        return gx, gw if want else None, None, None, None

    @differentiable(
        name,
        fake=lambda x, weight, ptr, order, spec: x.new_empty(
            x.shape[0], ContractionSpec.from_json(spec).dim_out, x.shape[2]
        ),
        setup_context=_save_forward,
        backward=_backward_of_forward,
    )
    def forward(x: Tensor, weight: Tensor, ptr: Tensor, order: Tensor, spec: str) -> Tensor:
        """Return the contraction of each node, shape (N, dim_out, C)."""
        out = x.new_empty(x.shape[0], ContractionSpec.from_json(spec).dim_out, x.shape[2])
        run("forward", spec, x, weight, ptr, order, out)
        return out

    return forward


forward: Callable[..., Any] = _operators("symmetric_contraction", _run_compiled)
gpu_forward: Callable[..., Any] = _operators("symmetric_contraction_triton", triton_launch.run)

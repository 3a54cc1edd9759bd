"""Registered torch operators of the symmetric contraction, with first and second derivatives.

The argument `want_weight` selects whether gradients of the weights are computed. The GPU kernels
take the polynomial's coefficients instead of the weights; the result is linear in both, so that the
operators are the same.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from scitoolkit.ops.codegen import (
    REAL,
    call,
    differentiable,
    load_generated,
    load_triton,
    on_device,
)
from scitoolkit.ops.codegen.compile import FLAGS
from scitoolkit.ops.symmetric_contraction import cpu, triton_source
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec, polynomial

# The source has thousands of straight-line vector operations. The disabled passes would take as
# long as all others together and gain nothing.
LIGHT_PASSES = ("-O1", "-fno-tree-fre", "-fno-tree-dse", "-fno-dse")
LIGHT_FLAGS = (*LIGHT_PASSES, *FLAGS[1:])
LAUNCH = {"num_warps": 1, "enable_fp_fusion": True}


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


@functools.lru_cache(maxsize=64)
def gpu_kernels(spec: str, dtype: torch.dtype) -> ModuleType:
    """Return the module of the Triton kernels of a spec for both precisions.

    Raises:
        BackendError: a spec that is too large.
    """
    return load_triton(triton_source.generate(ContractionSpec.from_json(spec)))


def _run_compiled(
    name: str, spec: str, x: Tensor, weight: Tensor, ptr: Tensor, order: Tensor, *rest: Tensor
) -> None:
    function = getattr(kernels(spec, x.dtype), name)
    sizes = weight.shape[0], weight.shape[2]
    call(function, *sizes, ptr, order, x, weight, *rest, torch.get_num_threads())


def _run_triton(
    name: str, spec: str, x: Tensor, weight: Tensor, ptr: Tensor, order: Tensor, *rest: Tensor
) -> None:
    if not x.numel() or not weight.shape[1]:  # no nodes, or no paths
        for gradient in rest[-2:] if name == "double_backward" else rest[-1:]:
            gradient.zero_()
        return
    module = gpu_kernels(spec, x.dtype)
    with on_device(x):
        if name.endswith("weight"):
            parts = triton_source.num_parts(ContractionSpec.from_json(spec))
            _sum_runs(getattr(module, name), parts, x, *rest[:-1], ptr, order, gradient=rest[-1])
            return
        tiles, starts = _tiles(ptr, x.shape[0])
        grid = (tiles.shape[0], -(-x.shape[2] // triton_source.BLOCK))
        graph = (x.shape[2], ptr, order, tiles, starts)
        if name == "double_backward":
            grad, dx, ggrad, gx = rest
            module.slopes[grid](x, weight, dx, ggrad, *graph, **LAUNCH)
            module.curvatures[grid](x, weight, grad, dx, gx, *graph, **LAUNCH)
        else:
            getattr(module, name)[grid](x, weight, *rest, *graph, **LAUNCH)


def _sum_runs(function, parts: int, *inputs: Tensor, gradient: Tensor) -> None:
    """Compute gradients of coefficients for runs of each element's nodes and sum them in order."""
    *tensors, ptr, order = inputs
    elements, rows, channels = gradient.shape
    sums = gradient.new_empty(elements, triton_source.RUNS, rows, channels)
    grid = (elements * triton_source.RUNS, parts, -(-channels // triton_source.BLOCK))
    function[grid](*tensors, sums, channels, ptr, order, **LAUNCH)
    torch.sum(sums, 1, out=gradient)


def _tiles(ptr: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return the element and first node of each tile, for the largest possible number of tiles.

    The actual number would require a synchronisation with the GPU.
    """
    elements = ptr.shape[0] - 1
    ends = torch.cumsum(-(-ptr.diff() // triton_source.TILE), 0)
    number = torch.arange(num_nodes // triton_source.TILE + elements, device=ptr.device)
    element = torch.searchsorted(ends, number, right=True).clamp_max(elements - 1)
    before = torch.cat([ends.new_zeros(1), ends])[element]
    return element, ptr[element] + (number - before) * triton_source.TILE


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
gpu_forward: Callable[..., Any] = _operators("symmetric_contraction_triton", _run_triton)

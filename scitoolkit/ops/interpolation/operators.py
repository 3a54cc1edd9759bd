"""Registered torch operators of interpolation: values, slopes, and their derivatives.

Values and slopes are separate autograd nodes, so that a gradient with respect to distances only
(forces) does not compute the gradient with respect to the coefficients.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from scitoolkit.ops.codegen import REAL, call, differentiable, empty, load_library
from scitoolkit.ops.interpolation import cpu, triton_source
from scitoolkit.ops.interpolation.grid import Placement


@functools.lru_cache(maxsize=4)
def kernels(spec: str, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels, compiled on first use; the spec is always empty.

    Raises:
        BackendError: no compiler, or a compiler error.
    """
    return load_library(source(spec, dtype))


def source(spec: str, dtype: torch.dtype) -> str:
    """Return the C source of the kernels."""
    return cpu.generate(REAL[dtype])


def _run(name: str, ptr: Tensor, order: Tensor, local: Tensor, width: int, *rest: Tensor) -> None:
    function = getattr(kernels("", local.dtype), name)
    call(function, len(ptr) - 1, width, ptr, order, local, *rest, torch.get_num_threads())


def run_values(coefficients: Tensor, local: Tensor, ptr: Tensor, order: Tensor) -> Tensor:
    """Return the values, shape (E, W)."""
    out = empty((len(local), coefficients.shape[2]), coefficients)
    _run("values", ptr, order, local, out.shape[1], coefficients, out)
    return out


def run_values_gradient(
    grad: Tensor, local: Tensor, coefficients: Tensor, ptr: Tensor, order: Tensor
) -> Tensor:
    """Return the gradient with respect to the coefficients, of which only the shape is used."""
    gradient = empty(tuple(coefficients.shape), grad)
    _run("values_gradient", ptr, order, local, grad.shape[1], grad, gradient)
    return gradient


def run_slopes(
    grad: Tensor, local: Tensor, coefficients: Tensor, ptr: Tensor, order: Tensor
) -> Tensor:
    """Return the sum over columns of the cotangent times the slope for each edge."""
    out = torch.empty_like(local)
    _run("slopes", ptr, order, local, grad.shape[1], coefficients, grad, out)
    return out


def run_slopes_gradient(
    direction: Tensor,
    grad: Tensor,
    local: Tensor,
    coefficients: Tensor,
    ptr: Tensor,
    order: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of <direction, slopes> in (grad, local, coefficients)."""
    out = (
        empty(tuple(grad.shape), grad),
        torch.empty_like(local),
        empty(tuple(coefficients.shape), coefficients),
    )
    arguments = (coefficients, grad, direction, *out)
    _run("slopes_gradient", ptr, order, local, grad.shape[1], *arguments)
    return out


def _save(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _save_inputs_of_slopes(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[1:])


def _operators(
    suffix: str,
    run_values: Callable[..., Tensor],
    run_values_gradient: Callable[..., Tensor],
    run_slopes: Callable[..., Tensor],
    run_slopes_gradient: Callable[..., tuple[Tensor, Tensor, Tensor]],
) -> tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[..., Tensor]]:
    """Register the operators of given kernels: values, values with a slope, and slopes."""

    @differentiable(
        f"interpolation_slopes{suffix}_backward",
        fake=lambda direction, grad, local, coefficients, ptr, order: (
            torch.empty_like(grad),
            torch.empty_like(local),
            torch.empty_like(coefficients),
        ),
    )
    def slopes_backward(
        direction: Tensor,
        grad: Tensor,
        local: Tensor,
        coefficients: Tensor,
        ptr: Tensor,
        order: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of <direction, slopes> in (grad, local, coefficients)."""
        return run_slopes_gradient(direction, grad, local, coefficients, ptr, order)

    def backward_of_slopes(ctx, direction):
        return *slopes_backward(direction.contiguous(), *ctx.saved_tensors), None, None

    @differentiable(
        f"interpolation_slopes{suffix}",
        fake=lambda grad, local, coefficients, ptr, order: torch.empty_like(local),
        setup_context=_save,
        backward=backward_of_slopes,
    )
    def slopes(
        grad: Tensor, local: Tensor, coefficients: Tensor, ptr: Tensor, order: Tensor
    ) -> Tensor:
        """Return the sum over columns of the cotangent times the slope for each edge."""
        return run_slopes(grad, local, coefficients, ptr, order)

    def backward_of_values_backward(ctx, direction):
        """Differentiate `values_backward`: by linearity the direction replaces coefficients."""
        grad, local, _, ptr, order = ctx.saved_tensors
        wants_grad, wants_local = ctx.needs_input_grad[:2]
        direction = direction.contiguous()
        by_grad = values(direction, local, ptr, order) if wants_grad else None
        by_local = slopes(grad, local, direction, ptr, order) if wants_local else None
        return by_grad, by_local, None, None, None

    @differentiable(
        f"interpolation_values{suffix}_backward",
        fake=lambda grad, local, coefficients, ptr, order: torch.empty_like(coefficients),
        setup_context=_save,
        backward=backward_of_values_backward,
    )
    def values_backward(
        grad: Tensor, local: Tensor, coefficients: Tensor, ptr: Tensor, order: Tensor
    ) -> Tensor:
        """Return the gradient with respect to the coefficients, of which only the shape is used."""
        return run_values_gradient(grad, local, coefficients, ptr, order)

    def backward_of_values(ctx, grad):
        if not ctx.needs_input_grad[0]:  # a table of fixed weights, at distances that move
            return None, None, None, None
        coefficients, local, ptr, order = ctx.saved_tensors
        grad = grad.contiguous()
        return values_backward(grad, local, coefficients, ptr, order), None, None, None

    @differentiable(
        f"interpolation_values{suffix}",
        fake=lambda coefficients, local, ptr, order: coefficients.new_empty(
            local.shape[0], coefficients.shape[2]
        ),
        setup_context=_save,
        backward=backward_of_values,
    )
    def values(coefficients: Tensor, local: Tensor, ptr: Tensor, order: Tensor) -> Tensor:
        """Return the values, differentiable in the coefficients."""
        return run_values(coefficients, local, ptr, order)

    def backward_of_with_slope(ctx, grad):
        slope = slopes(grad.contiguous(), *ctx.saved_tensors) if ctx.needs_input_grad[1] else None
        return grad, slope, None, None, None

    @differentiable(
        f"interpolation_with_slope{suffix}",
        fake=lambda values, local, coefficients, ptr, order: torch.empty_like(values),
        setup_context=_save_inputs_of_slopes,
        backward=backward_of_with_slope,
        plain=lambda values, *others: values.view_as(values),
    )
    def with_slope(
        values: Tensor, local: Tensor, coefficients: Tensor, ptr: Tensor, order: Tensor
    ) -> Tensor:
        """Return the values, differentiable in the local coordinate."""
        return values.clone()

    return values, with_slope, slopes


_values, _with_slope, _slopes = _operators(
    "", run_values, run_values_gradient, run_slopes, run_slopes_gradient
)
_gpu_values, _gpu_with_slope, _ = _operators(
    "_triton",
    triton_source.run_values,
    triton_source.run_values_gradient,
    triton_source.run_slopes,
    triton_source.run_slopes_gradient,
)


def slopes(cotangent: Tensor, coefficients: Tensor, place: Placement) -> Tensor:
    """Return d<cotangent, values>/d(local coordinate) for each edge, shape (E,).

    Args:
        cotangent: shape (E, W).
        coefficients, place: as for `piecewise_polynomial`.
    """
    local = place.local.to(coefficients.dtype).contiguous()
    return _slopes(cotangent, local, coefficients, place.ptr, place.order)


def piecewise_polynomial(coefficients: Tensor, place: Placement) -> Tensor:
    """Return the values at each distance, shape (E, W); see the public function."""
    coefficients = coefficients.contiguous()
    local = place.local.to(coefficients.dtype).contiguous()
    # `_values` has no gradient with respect to local, which `_with_slope` adds.
    values = _values(coefficients, local, place.ptr, place.order)
    return _with_slope(values, local, coefficients, place.ptr, place.order)


def gpu_piecewise_polynomial(coefficients: Tensor, place: Placement) -> Tensor:
    """Return the same values by the kernels of GPUs."""
    coefficients = coefficients.contiguous()
    local = place.local.to(coefficients.dtype).contiguous()
    values = _gpu_values(coefficients, local, place.ptr, place.order)
    return _gpu_with_slope(values, local, coefficients, place.ptr, place.order)

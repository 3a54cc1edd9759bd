"""The public function: checked once at the boundary, then the best backend there is.

Values and slopes are two nodes of autograd, so that a gradient with respect to distances alone
(forces) does not compute the gradient with respect to the coefficients.
"""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from scitoolkit.ops.codegen import (
    REAL,
    call,
    check_tensor,
    empty,
    is_eager,
    kernels_of,
    load_library,
    use_kernel,
)
from scitoolkit.ops.interpolation import cpu, reference
from scitoolkit.ops.interpolation.grid import NUM_COEFFICIENTS, Placement


@kernels_of("interpolation")
@functools.lru_cache(maxsize=4)
def kernels(spec: str, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels, compiled on first use.

    Raises:
        BackendError: no compiler, or one that fails.
    """
    return load_library(cpu.generate(REAL[dtype]))


def _run(name: str, place: Placement, local: Tensor, width: int, *rest: Tensor) -> None:
    function = getattr(kernels("", local.dtype), name)
    intervals = len(place.ptr) - 1
    threads = torch.get_num_threads()
    call(function, intervals, width, place.ptr, place.order, local, *rest, threads)


class _Values(torch.autograd.Function):
    """Values with their gradient with respect to the coefficients."""

    @staticmethod
    def forward(ctx, coefficients, local, place):
        ctx.save_for_backward(local)
        ctx.place, ctx.shape = place, coefficients.shape
        out = empty((len(local), coefficients.shape[2]), coefficients)
        _run("values", place, local, out.shape[1], coefficients, out)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        (local,) = ctx.saved_tensors
        gradient = empty(tuple(ctx.shape), grad)
        _run("values_gradient", ctx.place, local, grad.shape[1], grad.contiguous(), gradient)
        return gradient, None, None


class _WithSlope(torch.autograd.Function):
    """The values once more, with their gradient with respect to the local coordinate."""

    @staticmethod
    def forward(ctx, values, local, coefficients, place):
        ctx.save_for_backward(local, coefficients)
        ctx.place = place
        return values.view_as(values)

    @staticmethod
    def backward(ctx, grad):
        local, coefficients = ctx.saved_tensors
        slope = None
        if ctx.needs_input_grad[1]:
            slope = _Slopes.apply(grad.contiguous(), local, coefficients, ctx.place)
        return grad, slope, None, None


class _Slopes(torch.autograd.Function):
    """Sum over columns of the cotangent times the slope, for each edge."""

    @staticmethod
    def forward(ctx, grad, local, coefficients, place):
        ctx.save_for_backward(grad, local, coefficients)
        ctx.place = place
        out = torch.empty_like(local)
        _run("slopes", place, local, grad.shape[1], coefficients, grad, out)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, direction):
        grad, local, coefficients = ctx.saved_tensors
        out = (
            empty(tuple(grad.shape), grad),
            torch.empty_like(local),
            empty(tuple(coefficients.shape), coefficients),
        )
        arguments = (coefficients, grad, direction.contiguous(), *out)
        _run("slopes_gradient", ctx.place, local, grad.shape[1], *arguments)
        return *out, None


def piecewise_polynomial(
    coefficients: Tensor, place: Placement, *, backend: str = "auto"
) -> Tensor:
    """Return interpolated functions at distances, twice differentiable in both.

    Deterministic for any number of threads.

    Args:
        coefficients: shape (intervals + 1, 8, W), float32 or float64, from `Grid.coefficients`.
        place: the distances, from `Placement.build` on the same grid.
        backend: auto (kernel if it can run, else the reference, said once), cpu or reference.

    Returns:
        Values, shape (E, W), of the dtype of the coefficients; zero beyond the end of the grid.

    Raises:
        DataError: coefficients of another grid.
        BackendError: backend cpu is asked for and cannot run.

    Example:
        >>> from scitoolkit.ops.interpolation import Grid
        >>> grid = Grid(2.0, 10)
        >>> a = grid.coefficients(grid.nodes()[:, None] ** 2, torch.float64)
        >>> place = Placement.build(grid, torch.tensor([1.5, 3.0], dtype=torch.float64))
        >>> [round(v, 12) for v in piecewise_polynomial(a, place).flatten().tolist()]
        [2.25, 0.0]
    """
    shape = (len(place.ptr) - 1, NUM_COEFFICIENTS, "W")
    check_tensor("coefficients", coefficients, shape, coefficients)
    if not use_kernel("interpolation", "", coefficients, backend) or not is_eager(coefficients):
        return reference.piecewise_polynomial(coefficients, place)
    coefficients = coefficients.contiguous()
    local = place.local.to(coefficients.dtype).contiguous()
    values = _Values.apply(coefficients, local.detach(), place)
    return _WithSlope.apply(values, local, coefficients, place)

"""The torch operators over the generated kernels, with first and second derivatives.

Three operators, each the derivative of the one before: forward, backward, double_backward. The
spec travels as text, so that torch.compile and export see plain arguments.
"""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from scitoolkit.ops.codegen import call, load_library, operator
from scitoolkit.ops.tensor_product import cpu
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

REAL = {torch.float32: "float", torch.float64: "double"}


@functools.lru_cache(maxsize=256)
def kernels(spec: str, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels of a spec, compiled on first use.

    Raises:
        BackendError: no compiler, or one that fails.
    """
    return load_library(cpu.generate(TensorProductSpec.from_json(spec), REAL[dtype]))


def _weight_gradient(spec: TensorProductSpec, weight: Tensor) -> Tensor:
    """Buffer for the weights' gradient: per edge, or per chunk of nodes when shared."""
    if spec.shared_weights:
        return weight.new_zeros(cpu.NUM_CHUNKS, spec.weight_numel)
    return torch.empty_like(weight)


def _sum_chunks(spec: TensorProductSpec, gradient: Tensor) -> Tensor:
    return gradient.sum(0) if spec.shared_weights else gradient


def _strided(cotangent: Tensor | None, like: Tensor) -> tuple[Tensor, int]:
    """A cotangent with its row stride; a missing one is a single row of zeros, stride 0."""
    row = like.shape[-1]
    if cotangent is None:
        return like.new_zeros(max(row, 1)), 0
    return cotangent.contiguous(), row if like.ndim == 2 else 0


def _fake_forward(x, y, weight, sender, receiver, rp, ro, sp, so, spec):
    return x.new_empty(x.shape[0], TensorProductSpec.from_json(spec).dim_out)


def _fake_backward(grad, x, y, weight, sender, receiver, rp, ro, sp, so, spec):
    return torch.empty_like(x), torch.empty_like(y), torch.empty_like(weight)


def _fake_double(dx, dy, dw, grad, x, y, weight, sender, receiver, rp, ro, sp, so, spec):
    return tuple(torch.empty_like(each) for each in (grad, x, y, weight))


@operator("tensor_product_double_backward", fake=_fake_double)
def double_backward(
    dx: Tensor | None, dy: Tensor | None, dw: Tensor | None, grad: Tensor, x: Tensor, y: Tensor,
    weight: Tensor, sender: Tensor, receiver: Tensor, receiver_ptr: Tensor, receiver_order: Tensor,
    sender_ptr: Tensor, sender_order: Tensor, spec: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of <dx, gx> + <dy, gy> + <dw, gw> with respect to (grad, x, y, weight)."""
    parsed, library = TensorProductSpec.from_json(spec), kernels(spec, x.dtype)
    cotangents = [
        each for value, like in ((dx, x), (dy, y), (dw, weight)) for each in _strided(value, like)
    ]
    ggrad, gx, gy = torch.empty_like(grad), torch.empty_like(x), torch.empty_like(y)
    gw = _weight_gradient(parsed, weight)
    nodes, threads = x.shape[0], torch.get_num_threads()
    call(
        library.double_nodes, nodes, receiver_ptr, receiver_order, sender,
        x, y, weight, *cotangents, ggrad, threads,
    )  # fmt: skip
    call(
        library.double_edges, nodes, sender_ptr, sender_order, receiver,
        x, y, weight, grad, *cotangents, gx, gy, gw, threads,
    )  # fmt: skip
    return ggrad, gx, gy, _sum_chunks(parsed, gw)


def _save_backward(ctx, inputs, output) -> None:
    *tensors, spec = inputs
    ctx.save_for_backward(*tensors)
    ctx.spec = spec


def _backward_of_backward(ctx, dx, dy, dw):
    grads = double_backward(dx, dy, dw, *ctx.saved_tensors, ctx.spec)
    return (*grads, None, None, None, None, None, None, None)


@operator(
    "tensor_product_backward",
    fake=_fake_backward,
    setup_context=_save_backward,
    backward=_backward_of_backward,
)
def backward(
    grad: Tensor, x: Tensor, y: Tensor, weight: Tensor, sender: Tensor, receiver: Tensor,
    receiver_ptr: Tensor, receiver_order: Tensor, sender_ptr: Tensor, sender_order: Tensor,
    spec: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients with respect to (x, y, weight), each shaped as its argument."""
    parsed, library = TensorProductSpec.from_json(spec), kernels(spec, x.dtype)
    gx, gy, gw = torch.empty_like(x), torch.empty_like(y), _weight_gradient(parsed, weight)
    call(
        library.backward, x.shape[0], sender_ptr, sender_order, receiver,
        x, y, weight, grad, gx, gy, gw, torch.get_num_threads(),
    )  # fmt: skip
    return gx, gy, _sum_chunks(parsed, gw)


def _save_forward(ctx, inputs, output) -> None:
    *tensors, spec = inputs
    ctx.save_for_backward(*tensors)
    ctx.spec = spec


def _backward_of_forward(ctx, grad):
    grads = backward(grad.contiguous(), *ctx.saved_tensors, ctx.spec)
    return (*grads, None, None, None, None, None, None, None)


@operator(
    "tensor_product_forward",
    fake=_fake_forward,
    setup_context=_save_forward,
    backward=_backward_of_forward,
)
def forward(
    x: Tensor, y: Tensor, weight: Tensor, sender: Tensor, receiver: Tensor,
    receiver_ptr: Tensor, receiver_order: Tensor, sender_ptr: Tensor, sender_order: Tensor,
    spec: str,
) -> Tensor:  # fmt: skip
    """Sum over each receiver's edges of the tensor product, shape (N, dim_out), ir_mul layout."""
    parsed, library = TensorProductSpec.from_json(spec), kernels(spec, x.dtype)
    out = x.new_empty(x.shape[0], parsed.dim_out)
    call(
        library.forward, x.shape[0], receiver_ptr, receiver_order, sender,
        x, y, weight, out, torch.get_num_threads(),
    )  # fmt: skip
    return out

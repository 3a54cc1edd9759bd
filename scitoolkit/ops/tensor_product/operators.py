"""The torch operators over the generated kernels, with first and second derivatives.

Three operators, each the derivative of the one before: forward, backward, double_backward. The
spec travels as text, so that torch.compile and export see plain arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from scitoolkit.ops.codegen import call, eager, empty, is_eager, load_generated, operator
from scitoolkit.ops.tensor_product import cpu
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

REAL = {torch.float32: "float", torch.float64: "double"}


@functools.lru_cache(maxsize=1024)
def kernel(spec: str, name: str, dtype: torch.dtype, precise: bool = False) -> Callable:
    """Return one loaded kernel of a spec, compiled on first use; `precise` sums in float64.

    Raises:
        BackendError: no compiler, one that fails, or a spec that is too wide.
    """
    arguments = (spec, name, REAL[dtype], "double" if precise else "")
    return getattr(load_generated(_source, *arguments, depends=("e3nn",)), name)


def _source(spec: str, name: str, real: str, accumulate: str) -> str:
    return cpu.generate(TensorProductSpec.from_json(spec), name, real, accumulate)


def _sums(like: Tensor, precise: bool) -> torch.dtype:
    return torch.float64 if precise else like.dtype


def launch(
    name: str, spec: str, precise: bool, graph: tuple[Tensor, ...], inputs: tuple, *rest
) -> None:
    """Call a kernel on a graph, or a part of one; outputs come last and are written in place."""
    sender, ptr, order, chunk_ptr, row, extra = graph
    call(
        kernel(spec, name, inputs[0].dtype, precise), ptr.shape[0] - 1, sender.shape[0],
        chunk_ptr.shape[0] - 1, chunk_ptr, ptr, order, sender, row, extra,
        *inputs, *rest, torch.get_num_threads(),
    )  # fmt: skip


def _gradients(spec: TensorProductSpec, precise: bool, graph, x, y, weight) -> tuple:
    """Buffers (gx, extra rows of gx, gy, gw); of shared weights one row per chunk of nodes."""
    extra = int(graph[-1][-1])
    gx = empty((x.shape[0] + extra, spec.dim_in1), x, _sums(x, precise))
    shape = (graph[3].shape[0] - 1, spec.weight_numel) if spec.shared_weights else weight.shape
    gw = empty(shape, weight, _sums(x, precise) if spec.shared_weights else x.dtype)
    if spec.shared_weights:
        gw.zero_()
    return gx[: x.shape[0]], gx[x.shape[0] :], torch.empty_like(y), gw


def _finish(spec: TensorProductSpec, gradients: tuple) -> tuple[Tensor, Tensor, Tensor]:
    gx, _, gy, gw = gradients
    return gx.to(gy.dtype), gy, gw.sum(0).to(gy.dtype) if spec.shared_weights else gw


def _strided(cotangent: Tensor | None, like: Tensor) -> tuple[Tensor, int]:
    """A cotangent with its row stride; a missing one is a single row of zeros, stride 0."""
    row = like.shape[-1]
    if cotangent is None:
        return like.new_zeros(max(row, 1)), 0
    return cotangent.contiguous(), row if like.ndim == 2 else 0


def _fake_forward(x, y, weight, sender, ptr, order, chunk_ptr, row, extra, spec, precise):
    return x.new_empty(x.shape[0], TensorProductSpec.from_json(spec).dim_out)


def _fake_backward(grad, x, y, weight, sender, ptr, order, chunk_ptr, row, extra, spec, precise):
    return torch.empty_like(x), torch.empty_like(y), torch.empty_like(weight)


def _fake_double(dx, dy, dw, grad, x, y, weight, *rest):
    return tuple(torch.empty_like(each) for each in (grad, x, y, weight))


def first_derivatives(
    spec: str, precise: bool, graph: tuple[Tensor, ...], grad: Tensor, x: Tensor, y: Tensor,
    weight: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients with respect to x (all rows), y and weight, of a graph or a part of one."""
    parsed = TensorProductSpec.from_json(spec)
    gradients = _gradients(parsed, precise, graph, x, y, weight)
    launch("backward", spec, precise, graph, (x, y, weight, grad), *gradients)
    return _finish(parsed, gradients)


def second_derivatives(
    spec: str, precise: bool, graph: tuple[Tensor, ...], cotangents: tuple[Tensor | None, ...],
    grad: Tensor, x: Tensor, y: Tensor, weight: Tensor, ggrad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of <dx, gx> + <dy, gy> + <dw, gw>, of a graph or a part of one.

    The gradient with respect to `grad` is written into `ggrad`, in the rows of the graph's
    receivers; those of x (all rows), y and weight are returned.
    """
    parsed = TensorProductSpec.from_json(spec)
    gradients = _gradients(parsed, precise, graph, x, y, weight)
    pairs = zip(cotangents, (x, y, weight), strict=True)
    strided = [each for pair in pairs for each in _strided(*pair)]
    inputs = (x, y, weight, grad)
    launch("double_backward", spec, precise, graph, inputs, *strided, ggrad, *gradients)
    return _finish(parsed, gradients)


def _double_backward(
    dx: Tensor | None, dy: Tensor | None, dw: Tensor | None, grad: Tensor, x: Tensor, y: Tensor,
    weight: Tensor, sender: Tensor, receiver_ptr: Tensor, receiver_order: Tensor,
    chunk_ptr: Tensor, sender_row: Tensor, extra_ptr: Tensor, spec: str,
    precise: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of <dx, gx> + <dy, gy> + <dw, gw> with respect to (grad, x, y, weight)."""
    graph = (sender, receiver_ptr, receiver_order, chunk_ptr, sender_row, extra_ptr)
    ggrad = empty(grad.shape, grad, _sums(grad, precise))
    others = second_derivatives(spec, precise, graph, (dx, dy, dw), grad, x, y, weight, ggrad)
    return ggrad.to(grad.dtype), *others


double_backward = operator("tensor_product_double_backward", fake=_fake_double)(_double_backward)


def _save(ctx, inputs, output) -> None:
    *tensors, ctx.spec, ctx.precise = inputs
    ctx.save_for_backward(*tensors)


def _backward_of_backward(ctx, dx, dy, dw):
    arguments = (dx, dy, dw, *ctx.saved_tensors)
    # Third derivatives do not exist, so the implementation is called without any wrapping, but
    # only where nobody asks for them: the operator then says so.
    plain = is_eager(*arguments) and not torch.is_grad_enabled()
    grads = (_double_backward if plain else double_backward)(*arguments, ctx.spec, ctx.precise)
    return (*grads, *[None] * 8)


def _backward(
    grad: Tensor, x: Tensor, y: Tensor, weight: Tensor, sender: Tensor, receiver_ptr: Tensor,
    receiver_order: Tensor, chunk_ptr: Tensor, sender_row: Tensor, extra_ptr: Tensor, spec: str,
    precise: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients with respect to (x, y, weight), each shaped as its argument."""
    graph = (sender, receiver_ptr, receiver_order, chunk_ptr, sender_row, extra_ptr)
    return first_derivatives(spec, precise, graph, grad, x, y, weight)


backward = operator(
    "tensor_product_backward",
    fake=_fake_backward,
    setup_context=_save,
    backward=_backward_of_backward,
)(_backward)
_eager_backward = eager(_backward, _save, _backward_of_backward)


def _backward_of_forward(ctx, grad):
    arguments = (grad.contiguous(), *ctx.saved_tensors)
    grads = (_eager_backward if is_eager(*arguments) else backward)(
        *arguments, ctx.spec, ctx.precise
    )
    return (*grads, *[None] * 8)


def _forward(
    x: Tensor, y: Tensor, weight: Tensor, sender: Tensor, receiver_ptr: Tensor,
    receiver_order: Tensor, chunk_ptr: Tensor, sender_row: Tensor, extra_ptr: Tensor, spec: str,
    precise: bool,
) -> Tensor:  # fmt: skip
    """Sum over each receiver's edges of the tensor product, shape (N, dim_out), ir_mul layout."""
    graph = (sender, receiver_ptr, receiver_order, chunk_ptr, sender_row, extra_ptr)
    rows = (x.shape[0], TensorProductSpec.from_json(spec).dim_out)
    out = empty(rows, x, _sums(x, precise))
    launch("forward", spec, precise, graph, (x, y, weight), out)
    return out.to(x.dtype)


forward = operator(
    "tensor_product_forward",
    fake=_fake_forward,
    setup_context=_save,
    backward=_backward_of_forward,
)(_forward)
_eager_forward = eager(_forward, _save, _backward_of_forward)


def convolution(*arguments) -> Tensor:
    """The forward operator with its derivatives, by the shortest way that the caller allows."""
    return (_eager_forward if is_eager(*arguments[:-2]) else forward)(*arguments)

"""Registered torch operators of the tensor product, which call the generated C kernels.

There are three operators, each the derivative of the previous one: forward, backward,
double_backward. The spec is passed as text, which torch.compile and torch.export can trace. In
eager mode `autograd.py` calls the same three functions without the dispatcher.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scitoolkit.ops.codegen import REAL, call, empty, load_generated, operator
from scitoolkit.ops.codegen.compile import FLAGS, is_prebuilt
from scitoolkit.ops.codegen.prebuilt import noting
from scitoolkit.ops.tensor_product import cpu
from scitoolkit.ops.tensor_product.graph import EdgeTensors
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

# The source is vectorised explicitly: -O3 gains little over these passes and takes much longer.
QUICK_PASSES = ("-O1", "-fexpensive-optimizations", "-fschedule-insns2", "-funswitch-loops")
QUICK_FLAGS = (*QUICK_PASSES, *FLAGS[1:])


@functools.lru_cache(maxsize=1024)
def kernel(spec: str, name: str, dtype: torch.dtype, precise: bool = False) -> Callable[..., Any]:
    """Return one loaded kernel of a spec, compiled on first use; `precise` sums in float64.

    Raises:
        BackendError: no compiler, a compiler error, or a spec that is too wide.
    """
    return getattr(_library(spec, name, dtype, precise), name)


def _library(spec: str, name: str, dtype: torch.dtype, precise: bool) -> ctypes.CDLL:
    arguments = (spec, name, REAL[dtype], "double" if precise else "")
    return load_generated(_source, *arguments, flags=QUICK_FLAGS)


def prepare(
    spec: str, dtype: torch.dtype, precise: bool = False, deterministic: bool = True
) -> None:
    """Compile the forward kernel; if it is prebuilt, load those of the derivatives as well.

    A prebuilt forward kernel is of no use where the derivatives can be neither compiled nor loaded.

    Args:
        spec: the spec's text.
        dtype: float32 or float64.
        precise: sums in float64.
        deterministic: ignored, the kernels always are.

    Raises:
        BackendError: see `kernel`.
    """
    if is_prebuilt(_library(spec, "forward", dtype, precise)) or noting():
        for name in cpu.KERNELS[1:]:
            _library(spec, name, dtype, precise)


def _source(spec: str, name: str, real: str, accumulate: str) -> str:
    return cpu.generate(TensorProductSpec.from_json(spec), name, real, accumulate)


def source(spec: str, dtype: torch.dtype) -> str:
    """Return the C source of all kernels of a spec."""
    return "\n".join(_source(spec, name, REAL[dtype], "") for name in cpu.KERNELS)


def _sums(precise: bool) -> torch.dtype | None:
    return torch.float64 if precise else None  # None: the dtype of the inputs


def launch(name: str, spec: str, precise: bool, graph: EdgeTensors, inputs: tuple, *rest) -> None:
    """Call a kernel on a graph or a part of one; the last arguments are outputs."""
    sender, ptr, order, chunk_ptr, slot, slot_ptr, slot_node = graph.tensors
    call(
        kernel(spec, name, inputs[0].dtype, precise),
        graph.num_nodes,
        graph.num_edges,
        graph.num_chunks,
        chunk_ptr,
        ptr,
        order,
        sender,
        slot,
        slot_ptr,
        slot_node,
        *inputs,
        *rest,
        torch.get_num_threads(),
    )


def _gradients(
    spec: TensorProductSpec, precise: bool, graph: EdgeTensors, x, y, weight, gx
) -> tuple:
    """Return the output arguments of the gradient kernels, which add to gx and to shared gw."""
    dtype = _sums(precise)
    gx = empty(x.shape, x, dtype).zero_() if gx is None else gx
    gw = empty(weight.shape, weight, dtype if spec.shared_weights else None)
    if spec.shared_weights:
        gw.zero_()
    size = cpu.private_size(spec, graph.most_slots)
    private = empty((torch.get_num_threads() * size,), x, dtype)
    return gx, torch.empty_like(y), gw, private, size


def _finish(gradients: tuple) -> tuple[Tensor, Tensor, Tensor]:
    gx, gy, gw, *_ = gradients
    return gx.to(gy.dtype), gy, gw.to(gy.dtype)


def _strided(cotangent: Tensor | None, like: Tensor) -> tuple[Tensor, int]:
    """Return a cotangent with its row stride; a missing one is a row of zeros with stride 0."""
    row = like.shape[-1]
    if cotangent is None:
        return like.new_zeros(max(row, 1)), 0
    return cotangent.contiguous(), row if like.ndim == 2 else 0


def rows(
    x: Tensor, y: Tensor, weight: Tensor, graph: EdgeTensors, spec: str, precise: bool
) -> Tensor:
    """Return the sum of tensor products over each receiver's edges, shape (N, dim_out)."""
    shape = (x.shape[0], TensorProductSpec.from_json(spec).dim_out)
    out = empty(shape, x)
    launch("forward", spec, precise, graph, (x, y, weight), out)
    return out


def first_derivatives(
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    graph: EdgeTensors,
    spec: str,
    precise: bool,
    gx: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with respect to x (all rows), y and weight for a graph or a part.

    The gradient with respect to x is added to `gx` if given.
    """
    parsed = TensorProductSpec.from_json(spec)
    gradients = _gradients(parsed, precise, graph, x, y, weight, gx)
    launch("backward", spec, precise, graph, (x, y, weight, grad), *gradients)
    return _finish(gradients)


def second_derivatives(
    dx: Tensor | None,
    dy: Tensor | None,
    dw: Tensor | None,
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    graph: EdgeTensors,
    spec: str,
    precise: bool,
    ggrad: Tensor | None = None,
    gx: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of <dx, gx> + <dy, gy> + <dw, gw> in (grad, x, y, weight).

    For a part of a graph only the rows of its receivers are written to `ggrad`. The gradient with
    respect to x is added to `gx` if given.
    """
    parsed = TensorProductSpec.from_json(spec)
    if ggrad is None:
        ggrad = empty(grad.shape, grad)
    gradients = _gradients(parsed, precise, graph, x, y, weight, gx)
    cotangents = (*_strided(dx, x), *_strided(dy, y), *_strided(dw, weight))
    inputs = (x, y, weight, grad)
    launch("double_backward", spec, precise, graph, inputs, *cotangents, ggrad, *gradients)
    return ggrad, *_finish(gradients)


def _fake_forward(
    x, y, weight, sender, ptr, order, chunk_ptr, slot, slot_ptr, slot_node, spec, precise
):
    return x.new_empty(x.shape[0], TensorProductSpec.from_json(spec).dim_out)


def _fake_backward(
    grad, x, y, weight, sender, ptr, order, chunk_ptr, slot, slot_ptr, slot_node, spec, precise
):
    return torch.empty_like(x), torch.empty_like(y), torch.empty_like(weight)


def _fake_double(dx, dy, dw, grad, x, y, weight, *rest):
    return tuple(torch.empty_like(tensor) for tensor in (grad, x, y, weight))


def _double_backward(
    dx: Tensor | None,
    dy: Tensor | None,
    dw: Tensor | None,
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    sender: Tensor,
    receiver_ptr: Tensor,
    receiver_order: Tensor,
    chunk_ptr: Tensor,
    slot: Tensor,
    slot_ptr: Tensor,
    slot_node: Tensor,
    spec: str,
    precise: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    graph = EdgeTensors.of(
        sender, receiver_ptr, receiver_order, chunk_ptr, slot, slot_ptr, slot_node
    )
    return second_derivatives(dx, dy, dw, grad, x, y, weight, graph, spec, precise)


double_backward: Callable[..., Any] = operator("tensor_product_double_backward", fake=_fake_double)(
    _double_backward
)


def _save(ctx, inputs, output) -> None:
    *tensors, ctx.spec, ctx.precise = inputs
    ctx.save_for_backward(*tensors)


def _backward_of_backward(ctx, dx, dy, dw):
    grads = double_backward(dx, dy, dw, *ctx.saved_tensors, ctx.spec, ctx.precise)
    return (*grads, *[None] * 9)


def _backward(
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    sender: Tensor,
    receiver_ptr: Tensor,
    receiver_order: Tensor,
    chunk_ptr: Tensor,
    slot: Tensor,
    slot_ptr: Tensor,
    slot_node: Tensor,
    spec: str,
    precise: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    graph = EdgeTensors.of(
        sender, receiver_ptr, receiver_order, chunk_ptr, slot, slot_ptr, slot_node
    )
    return first_derivatives(grad, x, y, weight, graph, spec, precise)


backward: Callable[..., Any] = operator(
    "tensor_product_backward",
    fake=_fake_backward,
    setup_context=_save,
    backward=_backward_of_backward,
)(_backward)


def _backward_of_forward(ctx, grad):
    grads = backward(grad.contiguous(), *ctx.saved_tensors, ctx.spec, ctx.precise)
    return (*grads, *[None] * 9)


def _forward(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    sender: Tensor,
    receiver_ptr: Tensor,
    receiver_order: Tensor,
    chunk_ptr: Tensor,
    slot: Tensor,
    slot_ptr: Tensor,
    slot_node: Tensor,
    spec: str,
    precise: bool,
) -> Tensor:
    graph = EdgeTensors.of(
        sender, receiver_ptr, receiver_order, chunk_ptr, slot, slot_ptr, slot_node
    )
    return rows(x, y, weight, graph, spec, precise)


forward: Callable[..., Any] = operator(
    "tensor_product_forward",
    fake=_fake_forward,
    setup_context=_save,
    backward=_backward_of_forward,
)(_forward)

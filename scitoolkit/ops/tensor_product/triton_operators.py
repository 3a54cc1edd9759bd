"""Registered torch operators that launch the Triton kernels, with first and second derivatives.

As on the CPU there are three operators, each the derivative of the previous one. Only the gradients
named by letters in `wanted` are computed; the others are returned as empty tensors. With `atomic`
the kernels add to receivers and senders by atomics, and the index tensors of the order by sender
are empty.
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch
from torch import Tensor

from scitoolkit.ops.codegen import TRITON_REAL, differentiable, load_triton, on_device
from scitoolkit.ops.tensor_product import triton_source
from scitoolkit.ops.tensor_product.edges import Edges
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

MAX_RUNS = 1024  # maximum number of partial sums of shared weights, independent of the device
SMALLEST_RUN = 64
ATOMIC_RUN = 16  # edges per program, which adds to a receiver's row once or twice
# Explicit, because Triton's default for contraction into fused multiply-adds is about to change.
LAUNCH = {"num_warps": 1, "enable_fp_fusion": True}


@functools.lru_cache(maxsize=1024)
def kernel(
    spec: str, name: str, double: bool, dtype: torch.dtype, precise: bool = False
) -> ModuleType:
    """Return the module of one kernel; Triton compiles it on the first launch.

    Raises:
        BackendError: a spec that has no kernel or is too large.
    """
    accumulate = "float64" if precise else ""
    parsed = TensorProductSpec.from_json(spec)
    return load_triton(triton_source.generate(parsed, name, double, TRITON_REAL[dtype], accumulate))


def prepare(
    spec: str, dtype: torch.dtype, precise: bool = False, deterministic: bool = True
) -> None:
    """Generate all kernels of a spec.

    Args:
        spec: the spec's text.
        dtype: float32 or float64.
        precise: sums in float64.
        deterministic: kernels without atomics.

    Raises:
        BackendError: a spec that has no kernel or is too large.
    """
    names = triton_source.KERNELS if deterministic else triton_source.ATOMIC_KERNELS
    for name in names:
        kernel(spec, name, False, dtype, precise)


def _launch(name: str, spec: str, precise: bool, programs: int, inputs: tuple, *rest) -> None:
    """Launch a kernel; `inputs` has x, y, w and, for the double backward, their cotangents."""
    module = kernel(spec, name, len(inputs) > 3, inputs[0].dtype, precise)
    if programs and module.parts:
        with on_device(inputs[0]):
            module.kernel[(programs, module.parts)](*inputs, *rest, **LAUNCH)


def _strided(cotangent: Tensor | None, like: Tensor) -> tuple[Tensor, int]:
    """Return a cotangent with its row stride; a missing one is a row of zeros with stride 0."""
    row = like.shape[-1]
    if cotangent is None or cotangent.shape != like.shape:
        return like.new_zeros(max(row, 1)), 0
    return cotangent.contiguous(), row if like.ndim == 2 else 0


def _zeros(shape: tuple[int, int], like: Tensor, precise: bool) -> Tensor:
    """Return zeros for atomic additions, in the dtype of the sums."""
    return like.new_zeros(shape, dtype=torch.float64 if precise else like.dtype)


def _at_receivers(
    spec: str, precise: bool, atomic: bool, graph: tuple[Tensor, ...], inputs: tuple
) -> Tensor:
    """Return sums over each receiver's edges: z, or its derivative along given cotangents."""
    sender, receiver, receiver_ptr, receiver_order, _, _ = graph
    x = inputs[0]
    shape = (x.shape[0], TensorProductSpec.from_json(spec).dim_out)
    if not atomic:
        out = x.new_empty(shape)
        order = (receiver_ptr, receiver_order, sender)
        _launch("nodes", spec, precise, x.shape[0], inputs, out, *order)
        return out
    out, num_edges = _zeros(shape, x, precise), sender.shape[0]
    order = (receiver_order, sender, receiver, num_edges, ATOMIC_RUN)  # type: ignore[assignment]
    _launch("scatter", spec, precise, -(-num_edges // ATOMIC_RUN), inputs, out, *order)
    return out.to(x.dtype)


def _gradients(
    spec: str,
    precise: bool,
    atomic: bool,
    wanted: str,
    graph: tuple[Tensor, ...],
    inputs: tuple,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, y and weight; only the kernels of wanted ones are launched."""
    sender, receiver, _, receiver_order, sender_ptr, sender_order = graph
    x, y, weight = inputs[:3]
    parsed = TensorProductSpec.from_json(spec)
    gx, gy, gw = x.new_empty(0), torch.zeros_like(y), torch.empty_like(weight)
    order = (receiver_order, sender, receiver)
    num_edges = sender.shape[0]
    if "x" in wanted and atomic:
        gx = _zeros(x.shape, x, precise)
        _launch("gradients", spec, precise, num_edges, inputs, grad, gx, gy, gw, *order)
        gx = gx.to(x.dtype)
    elif "x" in wanted:
        gx, by_sender = torch.empty_like(x), (sender_ptr, sender_order, receiver)
        _launch("senders", spec, precise, x.shape[0], inputs, grad, gx, *by_sender)
    by_edge = "y" in wanted or ("w" in wanted and not parsed.shared_weights)
    if by_edge and not (atomic and "x" in wanted):
        _launch("edges", spec, precise, num_edges, inputs, grad, gy, gw, *order)
    if "w" in wanted and parsed.shared_weights:
        run = max(SMALLEST_RUN, -(-num_edges // MAX_RUNS))
        runs = -(-num_edges // run)
        sums = weight.new_empty(
            (runs, parsed.weight_numel), dtype=torch.float64 if precise else weight.dtype
        )
        _launch("weights", spec, precise, runs, inputs, grad, sums, *order, num_edges, run)
        gw = sums.sum(0).to(weight.dtype)
    return gx, gy, gw


def _empty(wanted: str, **like: Tensor) -> tuple[Tensor, ...]:
    return tuple(
        torch.empty_like(tensor) if name in wanted else tensor.new_empty(0)
        for name, tensor in like.items()
    )


def _only(wanted: str, **gradients: Tensor) -> tuple[Tensor, ...]:
    return tuple(g if name in wanted else g.new_empty(0) for name, g in gradients.items())


def _asked(ctx, names: str) -> str:
    """Return the names of the leading inputs that require a gradient."""
    asked = ctx.needs_input_grad[: len(names)]
    return "".join(name for name, yes in zip(names, asked, strict=True) if yes)


def _given(wanted: str, names: str, gradients: tuple) -> list[Tensor | None]:
    return [g if name in wanted else None for name, g in zip(names, gradients, strict=True)]


def _fake_forward(x, y, weight, sender, receiver, ptr, order, sender_ptr, sender_order, spec, *_):
    return x.new_empty(x.shape[0], TensorProductSpec.from_json(spec).dim_out)


def _fake_backward(grad, x, y, weight, *rest):
    return _empty(rest[-1], x=x, y=y, w=weight)


def _fake_double(dx, dy, dw, grad, x, y, weight, *rest):
    return _empty(rest[-1], g=grad, x=x, y=y, w=weight)


@differentiable("tensor_product_triton_double_backward", fake=_fake_double)
def double_backward(
    dx: Tensor | None,
    dy: Tensor | None,
    dw: Tensor | None,
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    sender: Tensor,
    receiver: Tensor,
    receiver_ptr: Tensor,
    receiver_order: Tensor,
    sender_ptr: Tensor,
    sender_order: Tensor,
    spec: str,
    precise: bool,
    atomic: bool,
    wanted: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of <dx, gx> + <dy, gy> + <dw, gw> in (grad, x, y, weight)."""
    graph = (sender, receiver, receiver_ptr, receiver_order, sender_ptr, sender_order)
    cotangents = [
        g for value, like in ((dx, x), (dy, y), (dw, weight)) for g in _strided(value, like)
    ]
    inputs = (x, y, weight, *cotangents)
    ggrad = grad
    if "g" in wanted:
        ggrad = _at_receivers(spec, precise, atomic, graph, inputs)
    gx, gy, gw = _gradients(spec, precise, atomic, wanted, graph, inputs, grad)
    return _only(wanted, g=ggrad, x=gx, y=gy, w=gw)  # type: ignore[return-value]


def _save(ctx, inputs, output) -> None:
    tensors = [argument for argument in inputs if isinstance(argument, Tensor)]
    ctx.options = inputs[len(tensors) : len(tensors) + 3]  # spec, precise, atomic
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)


def _backward_of_backward(ctx, dx, dy, dw):
    arguments = (dx, dy, dw, *ctx.saved_tensors)
    wanted = _asked(ctx, "gxyw")
    grads = double_backward(*arguments, *ctx.options, wanted)
    return (*_given(wanted, "gxyw", grads), *[None] * 10)


@differentiable(
    "tensor_product_triton_backward",
    fake=_fake_backward,
    setup_context=_save,
    backward=_backward_of_backward,
)
def backward(
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    sender: Tensor,
    receiver: Tensor,
    receiver_ptr: Tensor,
    receiver_order: Tensor,
    sender_ptr: Tensor,
    sender_order: Tensor,
    spec: str,
    precise: bool,
    atomic: bool,
    wanted: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with respect to (x, y, weight), empty if not wanted."""
    graph = (sender, receiver, receiver_ptr, receiver_order, sender_ptr, sender_order)
    gx, gy, gw = _gradients(spec, precise, atomic, wanted, graph, (x, y, weight), grad)
    return _only(wanted, x=gx, y=gy, w=gw)  # type: ignore[return-value]


def _backward_of_forward(ctx, grad):
    if grad is None:
        return (None,) * 12
    arguments, wanted = (grad.contiguous(), *ctx.saved_tensors), _asked(ctx, "xyw")
    grads = backward(*arguments, *ctx.options, wanted)
    return (*_given(wanted, "xyw", grads), *[None] * 9)


@differentiable(
    "tensor_product_triton_forward",
    fake=_fake_forward,
    setup_context=_save,
    backward=_backward_of_forward,
)
def forward(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    sender: Tensor,
    receiver: Tensor,
    receiver_ptr: Tensor,
    receiver_order: Tensor,
    sender_ptr: Tensor,
    sender_order: Tensor,
    spec: str,
    precise: bool,
    atomic: bool,
) -> Tensor:
    """Return the sum of tensor products over each receiver's edges, shape (N, dim_out)."""
    graph = (sender, receiver, receiver_ptr, receiver_order, sender_ptr, sender_order)
    return _at_receivers(spec, precise, atomic, graph, (x, y, weight))


def convolution(
    x: Tensor, y: Tensor, weight: Tensor, edges: Edges, spec: str, precise: bool, atomic: bool
) -> Tensor:
    """Call the forward operator with the graph's index tensors."""
    unused = edges.sender.new_empty(0)
    arguments = (
        x,
        y,
        weight,
        edges.sender,
        edges.receiver,
        edges.receiver_ptr,
        edges.receiver_order,
        *((unused, unused) if atomic else edges.by_sender),
    )
    return forward(*arguments, spec, precise, atomic)

"""The torch operators over the generated kernels, with first and second derivatives.

Gradients of the weights are computed only when asked for: `want_weight` travels with the call.
"""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from scitoolkit.ops.codegen import REAL, call, kernels_of, load_generated, operator
from scitoolkit.ops.codegen.compile import FLAGS
from scitoolkit.ops.symmetric_contraction import cpu
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec

# The source is straight lines of vector operations by the thousand: passes that look for more in
# them take as long as all others together and gain nothing.
LIGHT_FLAGS = ("-O1", "-fno-tree-fre", "-fno-tree-dse", "-fno-dse", *FLAGS[1:])


@kernels_of("symmetric contraction")
@functools.lru_cache(maxsize=64)
def kernels(spec: str, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels of a spec, compiled on first use.

    Raises:
        BackendError: no compiler, or one that fails.
    """
    return load_generated(_source, spec, REAL[dtype], flags=LIGHT_FLAGS, depends=("e3nn",))


def _source(spec: str, real: str) -> str:
    return cpu.generate(ContractionSpec.from_json(spec), real)


def _run(name: str, spec: str, x: Tensor, weight: Tensor, ptr: Tensor, order: Tensor, *rest):
    function = getattr(kernels(spec, x.dtype), name)
    sizes = weight.shape[0], weight.shape[2]
    call(function, *sizes, ptr, order, x, weight, *rest, torch.get_num_threads())


def _like_weight(weight: Tensor, want_weight: bool) -> Tensor:
    return torch.empty_like(weight) if want_weight else weight.new_empty(0)


def _fake_double(dx, grad, x, weight, ptr, order, spec, want_weight):
    return torch.empty_like(grad), torch.empty_like(x), _like_weight(weight, want_weight)


@operator("symmetric_contraction_double_backward", fake=_fake_double)
def double_backward(
    dx: Tensor, grad: Tensor, x: Tensor, weight: Tensor, ptr: Tensor, order: Tensor, spec: str,
    want_weight: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of <dx, gx> with respect to (grad, x, weight)."""
    ggrad, gx, gw = _fake_double(dx, grad, x, weight, ptr, order, spec, want_weight)
    arguments = (spec, x, weight, ptr, order, grad, dx)
    _run("double_backward", *arguments, ggrad, gx)
    if want_weight:
        _run("double_backward_weight", *arguments, gw)
    return ggrad, gx, gw


def _fake_backward(grad, x, weight, ptr, order, spec, want_weight):
    return torch.empty_like(x), _like_weight(weight, want_weight)


def _save_backward(ctx, inputs, output) -> None:
    ctx.set_materialize_grads(False)
    *tensors, ctx.spec, _ = inputs
    ctx.save_for_backward(*tensors)


def _sum(*parts: Tensor | None) -> Tensor | None:
    given = [each for each in parts if each is not None]
    return functools.reduce(torch.add, given) if given else None


def _backward_of_backward(ctx, dx, dw):
    """The weights enter linearly: their cotangent is a forward and a backward with it."""
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


@operator(
    "symmetric_contraction_backward",
    fake=_fake_backward,
    setup_context=_save_backward,
    backward=_backward_of_backward,
)
def backward(
    grad: Tensor, x: Tensor, weight: Tensor, ptr: Tensor, order: Tensor, spec: str,
    want_weight: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients with respect to (x, weight); the second is empty unless it is wanted."""
    gx, gw = _fake_backward(grad, x, weight, ptr, order, spec, want_weight)
    arguments = (spec, x, weight, ptr, order, grad)
    _run("backward", *arguments, gx)
    if want_weight:
        _run("backward_weight", *arguments, gw)
    return gx, gw


def _save_forward(ctx, inputs, output) -> None:
    *tensors, ctx.spec = inputs
    ctx.save_for_backward(*tensors)


def _backward_of_forward(ctx, grad):
    want = ctx.needs_input_grad[1]
    gx, gw = backward(grad.contiguous(), *ctx.saved_tensors, ctx.spec, want)
    return gx, gw if want else None, None, None, None


@operator(
    "symmetric_contraction",
    fake=lambda x, weight, ptr, order, spec: x.new_empty(
        x.shape[0], ContractionSpec.from_json(spec).dim_out, x.shape[2]
    ),
    setup_context=_save_forward,
    backward=_backward_of_forward,
)
def forward(x: Tensor, weight: Tensor, ptr: Tensor, order: Tensor, spec: str) -> Tensor:
    """Contraction of each node, shape (N, dim_out, C)."""
    out = x.new_empty(x.shape[0], ContractionSpec.from_json(spec).dim_out, x.shape[2])
    _run("forward", spec, x, weight, ptr, order, out)
    return out

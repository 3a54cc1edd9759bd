"""Derivatives of the convolution for autograd and torch.func.

Dispatching a registered operator takes as long as a small kernel, and torch.func cannot
differentiate it. In eager mode tensors therefore use a `torch.autograd.Function`, or none if no
input requires grad; under torch.func they use one with rules for transforms. Under a tracer the
registered operators are called.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError, DataError
from scitoolkit.ops.codegen import (
    eager,
    functional,
    is_eager,
    is_recorded,
    is_traced_transform,
    is_transformed,
)
from scitoolkit.ops.tensor_product import operators
from scitoolkit.ops.tensor_product.edges import Edges
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

# A batch under vmap runs as one graph of copies if the copies of shared tensors are no larger.
REPEATED_BYTES = 4 << 20


def convolution(
    x: Tensor, y: Tensor, weight: Tensor, edges: Edges, spec: str, precise: bool
) -> Tensor:
    """Compute the convolution by the shortest call path: eager, torch.func or operator."""
    if is_traced_transform():  # a registered operator would silently drop tangents
        raise BackendError("no kernel for torch.func while it is traced", fix="backend='reference'")
    run = _forward(x, y, weight)
    if run is None:
        return operators.forward(x, y, weight, *edges.tensors(), spec, precise)
    return run(x, y, weight, edges.graph, spec, precise)


def _call_paths(function: Callable, backward: Callable, jvp: Callable) -> Callable:
    """Return the function that selects a call path for given tensors: None under a tracer."""
    plain = eager(function, _save, backward)
    transformed = functional(function, _save_for_both, backward, _vmap, jvp=jvp)

    def select(*tensors: Tensor | None) -> Callable | None:
        if is_transformed():
            return transformed
        if not is_eager(*tensors):
            return None
        return plain if is_recorded(*tensors) else function

    return select


def _save(ctx, inputs, output) -> None:
    *tensors, ctx.graph, ctx.spec, ctx.precise = inputs
    ctx.save_for_backward(*tensors)
    # The kernels support missing cotangents of the three gradients without reading zeros.
    ctx.set_materialize_grads(not isinstance(output, tuple))


def _save_for_both(ctx, inputs, output) -> None:
    _save(ctx, inputs, output)
    ctx.save_for_forward(*inputs[:-3])


def _vmap(apply: Callable, size: int, in_dims: tuple, arguments: tuple) -> Tensor | tuple:
    """Run a batch as one call on copies of the graph, or as one call per element."""
    if not size:
        raise DataError("torch.func.vmap over an empty batch")
    *tensors, graph, spec, precise = arguments
    sides = list(zip(tensors, in_dims, strict=False))
    shared = sum(side.nbytes for side, dim in sides if dim is None and side is not None)
    by_edge = not TensorProductSpec.from_json(spec).shared_weights
    if by_edge and size * shared <= REPEATED_BYTES:
        rows = [_joined(side, dim, size) for side, dim in sides]
        outputs = apply(*rows, graph.copies(size), spec, precise)
        return _each(outputs, lambda out: out.unflatten(0, (size, out.shape[0] // size)))
    of_one = [
        apply(*[_element(side, dim, i) for side, dim in sides], graph, spec, precise)
        for i in range(size)
    ]
    if isinstance(of_one[0], tuple):
        return tuple(torch.stack(parts) for parts in zip(*of_one, strict=True))
    return torch.stack(of_one)


def _each(outputs: Tensor | tuple, function: Callable) -> Tensor | tuple:
    return tuple(map(function, outputs)) if isinstance(outputs, tuple) else function(outputs)


def _joined(value: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """Concatenate the rows of all elements of a batch."""
    if value is None:
        return None
    batch = value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
    return batch.flatten(0, 1).contiguous()


def _element(value: Tensor | None, dim: int | None, index: int) -> Tensor | None:
    return value if dim is None else value.select(dim, index).contiguous()  # type: ignore[union-attr]


def _no_third(ctx, *_):
    raise BackendError("the kernels have no third derivative", fix="backend='reference'")


def _backward_of_backward(ctx, dx, dy, dw):
    tensors = (dx, dy, dw, *ctx.saved_tensors)
    run = _second(*tensors)
    if run is None:
        grads = operators.double_backward(*tensors, *ctx.graph.tensors, ctx.spec, ctx.precise)
    else:
        grads = run(*tensors, ctx.graph, ctx.spec, ctx.precise)
    return *grads, None, None, None


def _backward_of_forward(ctx, grad):
    return *_gradients(ctx, grad.contiguous(), *ctx.saved_tensors), None, None, None


def _gradients(ctx, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    run = _first(*tensors)
    if run is None:
        return operators.backward(*tensors, *ctx.graph.tensors, ctx.spec, ctx.precise)
    return run(*tensors, ctx.graph, ctx.spec, ctx.precise)


# Forward mode: outputs are linear in each tensor, so a tangent replaces its tensor.


def _jvp_of_forward(ctx, *tangents):
    tensors, run = ctx.saved_tensors, _forward(*ctx.saved_tensors)
    return sum(
        run(*tensors[:i], tangent, *tensors[i + 1 :], ctx.graph, ctx.spec, ctx.precise)
        for i, tangent in enumerate(tangents[:3])
        if tangent is not None
    )


def _jvp_of_backward(ctx, *tangents):
    tensors, sums = ctx.saved_tensors, [torch.zeros_like(t) for t in ctx.saved_tensors[1:]]
    for i, tangent in enumerate(tangents[:4]):
        if tangent is not None:
            parts = _gradients(ctx, *tensors[:i], tangent.contiguous(), *tensors[i + 1 :])
            pairs = zip(sums, parts, strict=True)
            # The gradient with respect to a tensor does not depend on that tensor.
            sums = [s if j + 1 == i else s + part for j, (s, part) in enumerate(pairs)]
    return tuple(sums)


_forward = _call_paths(operators.rows, _backward_of_forward, _jvp_of_forward)
_first = _call_paths(operators.first_derivatives, _backward_of_backward, _jvp_of_backward)
_second = _call_paths(operators.second_derivatives, _no_third, _no_third)

"""Convolution fused with the last layer of the radial network: weights are never stored.

The weights w = h M of an edge (thousands of numbers, from some tens in h) dominate the memory
traffic of an equivariant layer and, with gradients, its memory. Here they are computed for one part
of the edges at a time by a matrix product, whose result stays in cache until the kernel has used
it. Both derivatives recompute them, by the product rule:

    forward    z = F(x, y, h M)
    first      (gx, gy, gw) = B(g, x, y, h M);  gh = gw M^T;  gM = h^T gw
    second     with cotangents (cx, cy, ch, cM):  dw = ch M + h cM and
               (gg, gx', gy', gw') = D(cx, cy, dw, g, x, y, h M);
               gh' = gw' M^T + gw cM^T;  gM' = h^T gw' + ch^T gw
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.codegen import (
    GeneratedC,
    Operation,
    Reference,
    Triton,
    check_tensor,
    eager,
    is_eager,
    is_transformed,
    refusing,
)
from scitoolkit.ops.codegen.backends import FUNCTIONS
from scitoolkit.ops.tensor_product import operators, triton_operators
from scitoolkit.ops.tensor_product.edges import EdgePart, Edges
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

WEIGHT_BYTES = 4 << 20  # weights per part: with their gradients they fit into the last-level cache
FEWEST_EDGES = 64


def radial_convolution(
    spec: TensorProductSpec,
    x: Tensor,
    y: Tensor,
    hidden: Tensor,
    last: Tensor,
    edges: Edges,
    *,
    backend: str = "auto",
) -> Tensor:
    """Convolution with the weights `hidden @ last`, which are never stored for all edges.

    Equal to `tensor_product_convolution` with these weights and twice differentiable in all
    tensors. Only the CPU kernels avoid the storage; other backends, torch.compile and torch.func
    compute all weights.

    Args:
        spec: the tensor product, with weights per edge.
        x: node features, shape (N, dim_in1), float32 or float64, ir_mul layout.
        y: edge attributes, shape (E, dim_in2), ir_mul layout.
        hidden: input of the last layer of the radial network, shape (E, H).
        last: matrix of that layer, shape (H, weight_numel); it has no bias.
        edges: the graph, from `Edges.build`.
        backend: as for `tensor_product_convolution`.

    Returns:
        Node features, shape (N, dim_out), ir_mul layout.

    Raises:
        ConfigError: a spec with shared weights, or an unknown backend.
        DataError: a shape, dtype or device that does not match.
        BackendError: the named backend cannot run.

    Example:
        >>> spec = TensorProductSpec.channelwise("8x0e + 8x1o", "0e + 1o", "0e + 1o")
        >>> edges = Edges.build(torch.tensor([0, 1]), torch.tensor([1, 0]), num_nodes=3)
        >>> hidden, last = torch.ones(2, 16), torch.ones(16, spec.weight_numel)
        >>> radial_convolution(
        ...     spec, torch.ones(3, 32), torch.ones(2, 4), hidden, last, edges
        ... ).shape
        torch.Size([3, 64])
    """
    if spec.shared_weights:
        raise ConfigError("radial_convolution with shared weights", allowed="weights per edge")
    if hidden.ndim != 2 or len(hidden) != edges.num_edges:
        shape = tuple(hidden.shape)
        raise DataError(f"expected hidden of shape ({edges.num_edges}, H), got {shape}")
    check_tensor("hidden", hidden, tuple(hidden.shape), x)
    check_tensor("last", last, (hidden.shape[1], spec.weight_numel), x)
    check_tensor("x", x, (edges.num_nodes, spec.dim_in1), x)
    check_tensor("y", y, (edges.num_edges, spec.dim_in2), x)
    return OPERATION.choose(spec.text, x, backend)(x, y, hidden, last, edges, spec)


def _with_stored_weights(backend: str) -> Callable[..., Tensor]:
    """Return the operation that stores all weights and calls a backend's tensor product."""

    def run(
        x: Tensor, y: Tensor, hidden: Tensor, last: Tensor, edges: Edges, spec: TensorProductSpec
    ) -> Tensor:
        product = FUNCTIONS[backend, "tensor_product"]
        return product(x, y, hidden @ last, edges, spec, False, True)

    return run


OPERATION = Operation(
    "radial_convolution",
    "tensor product fused with the last layer of the radial network",
    _with_stored_weights(Reference.name),
    examples="scitoolkit.ops.tensor_product.examples:radial_examples",
)
Triton.serve(OPERATION.name, prepare=triton_operators.prepare)(_with_stored_weights(Triton.name))


@GeneratedC.serve(
    OPERATION.name, prepare=operators.prepare, transforms=True, source=operators.source
)
def _on_cpu(
    x: Tensor, y: Tensor, hidden: Tensor, last: Tensor, edges: Edges, spec: TensorProductSpec
) -> Tensor:
    if not is_eager(x, y, hidden, last) or is_transformed():
        return _with_stored_weights(GeneratedC.name)(x, y, hidden, last, edges, spec)
    tensors = (tensor.contiguous() for tensor in (x, y, hidden, last))
    return _recorded(*tensors, spec, edges)


def _parts(spec: TensorProductSpec, edges: Edges, like: Tensor) -> Iterator[EdgePart]:
    row = max(1, spec.weight_numel) * like.element_size()
    return iter(edges.parts(max(FEWEST_EDGES, WEIGHT_BYTES // row)))


def _run(
    x: Tensor, y: Tensor, hidden: Tensor, last: Tensor, spec: TensorProductSpec, edges: Edges
) -> Tensor:
    out = x.new_zeros(x.shape[0], spec.dim_out)
    for part in _parts(spec, edges, x):
        inputs = (x, y[part.index], hidden[part.index] @ last)
        operators.launch("forward", spec.text, False, part.graph, inputs, out)
    return out


def _gradients(
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    hidden: Tensor,
    last: Tensor,
    spec: TensorProductSpec,
    edges: Edges,
) -> tuple[Tensor, ...]:
    """Return the gradients with respect to (x, y, hidden, last)."""
    sums = [torch.zeros_like(tensor) for tensor in (x, y, hidden, last)]
    gx, gy, gh, gm = sums
    for part in _parts(spec, edges, x):
        h = hidden[part.index]
        _, gy[part.index], gw = operators.first_derivatives(
            grad, x, y[part.index], h @ last, part.graph, spec.text, False, gx
        )
        gh[part.index] = gw @ last.T
        gm.addmm_(h.T, gw)
    return tuple(sums)


def _second_gradients(
    cx: Tensor,
    cy: Tensor,
    ch: Tensor,
    cm: Tensor,
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    hidden: Tensor,
    last: Tensor,
    spec: TensorProductSpec,
    edges: Edges,
) -> tuple[Tensor, ...]:
    """Return gradients of <cx, gx> + <cy, gy> + <ch, gh> + <cm, gm> in all five tensors."""
    sums = [torch.zeros_like(tensor) for tensor in (grad, x, y, hidden, last)]
    ggrad, gx, gy, gh, gm = sums
    for part in _parts(spec, edges, x):
        index, h, c = part.index, hidden[part.index], ch[part.index]
        weight, y_part = h @ last, y[part.index]
        dw = torch.addmm(c @ last, h, cm)
        of_part = (grad, x, y_part, weight, part.graph, spec.text, False)
        gw = operators.first_derivatives(*of_part)[2]
        _, _, gy[index], again = operators.second_derivatives(
            cx, cy[index], dw, *of_part, ggrad, gx
        )
        gh[index] = torch.addmm(again @ last.T, gw, cm.T)
        gm.addmm_(h.T, again).addmm_(c.T, gw)
    return tuple(sums)


def _save(ctx, inputs, output) -> None:
    *tensors, ctx.spec, ctx.edges = inputs
    ctx.save_for_backward(*tensors)


def _backward_of_gradients(ctx, *cotangents):
    dense = [cotangent.contiguous() for cotangent in cotangents]
    return *_recorded_second(*dense, *ctx.saved_tensors, ctx.spec, ctx.edges), None, None


def _backward_of_run(ctx, grad):
    tensors = ctx.saved_tensors
    return *_recorded_gradients(grad.contiguous(), *tensors, ctx.spec, ctx.edges), None, None


_recorded_second = refusing("radial_convolution beyond the second", _second_gradients)
_recorded_gradients = eager(_gradients, _save, _backward_of_gradients)
_recorded = eager(_run, _save, _backward_of_run)

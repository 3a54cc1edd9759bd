"""Convolution with weights from a table of distances, for inference.

A radial network is a function of one scalar, so a table (`EquidistantGrid.coefficients`) gives its
values and slopes. Weights are interpolated for one part of the edges at a time. The backward pass
interpolates them again and reduces their gradients to those of the distances part by part. No array
of the size of edges times weights is stored, and no network is evaluated:

    forward    z = F(x, y, w(r))
    backward   (gx, gy, gw) = B(g, x, y, w(r));  gr = <gw, w'(r)>

The table has no gradient, and there is no second derivative. The exported C library evaluates its
layers by the same method.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.codegen import (
    GeneratedC,
    Operation,
    Reference,
    check_tensor,
    eager,
    is_eager,
    refusing,
)
from scitoolkit.ops.codegen.backends import FUNCTIONS
from scitoolkit.ops.interpolation import EquidistantGrid, Placement
from scitoolkit.ops.interpolation import operators as interpolation
from scitoolkit.ops.interpolation.reference import piecewise_polynomial
from scitoolkit.ops.tensor_product import operators
from scitoolkit.ops.tensor_product.edges import EdgePart, Edges
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

WEIGHT_BYTES = 16 << 20  # weights per part: in larger parts more edges share an interval's table
FEWEST_EDGES = 64


def tabulated_convolution(
    spec: TensorProductSpec,
    x: Tensor,
    y: Tensor,
    distances: Tensor,
    grid: EquidistantGrid,
    coefficients: Tensor,
    edges: Edges,
    *,
    backend: str = "auto",
) -> Tensor:
    """Convolution with weights interpolated from a table, which are never stored for all edges.

    Equal to `tensor_product_convolution` with these weights. Once differentiable in x, y and
    distances, for forces.

    Args:
        spec: the tensor product, with weights per edge.
        x: node features, shape (N, dim_in1), float32 or float64, ir_mul layout.
        y: edge attributes, shape (E, dim_in2), ir_mul layout.
        distances: shape (E,), in the unit of the grid; weights are zero beyond its end.
        grid: the grid of distances.
        coefficients: `grid.coefficients` of the weights at the nodes, shape (intervals + 1, 8,
            weight_numel), without gradient.
        edges: the graph, from `Edges.build`.
        backend: as for `tensor_product_convolution`.

    Returns:
        Node features, shape (N, dim_out), ir_mul layout.

    Raises:
        ConfigError: a spec with shared weights, or an unknown backend.
        DataError: a shape, dtype or device that does not match, or coefficients that require grad.
        BackendError: the named backend cannot run.

    Example:
        >>> spec = TensorProductSpec.channelwise("8x0e + 8x1o", "0e + 1o", "0e + 1o")
        >>> edges = Edges.build(torch.tensor([0, 1]), torch.tensor([1, 0]), num_nodes=3)
        >>> grid = EquidistantGrid(5.0, 20)
        >>> weights = torch.cos(grid.nodes())[:, None].expand(-1, spec.weight_numel)
        >>> table = grid.coefficients(weights, torch.float32)
        >>> tabulated_convolution(
        ...     spec, torch.ones(3, 32), torch.ones(2, 4), torch.tensor([1.0, 2.0]), grid, table,
        ...     edges,
        ... ).shape
        torch.Size([3, 64])
    """
    if spec.shared_weights:
        raise ConfigError("tabulated_convolution with shared weights", allowed="weights per edge")
    if coefficients.requires_grad:
        raise DataError(
            "tabulated_convolution has no gradient of the table, but coefficients require grad",
            fix="tensor_product_convolution of piecewise_polynomial",
        )
    check_tensor("x", x, (edges.num_nodes, spec.dim_in1), x)
    check_tensor("y", y, (edges.num_edges, spec.dim_in2), x)
    check_tensor("distances", distances, (edges.num_edges,), x)
    check_tensor("coefficients", coefficients, (grid.num_intervals + 1, 8, spec.weight_numel), x)
    run = OPERATION.choose(spec.text, x, backend)
    return run(x, y, distances, grid, coefficients, edges, spec)


def _reference(
    x: Tensor,
    y: Tensor,
    distances: Tensor,
    grid: EquidistantGrid,
    coefficients: Tensor,
    edges: Edges,
    spec: TensorProductSpec,
) -> Tensor:
    weights = piecewise_polynomial(coefficients, Placement.build(grid, distances))
    return FUNCTIONS[Reference.name, "tensor_product"](x, y, weights, edges, spec, False, True)


OPERATION = Operation(
    "tabulated_convolution",
    "tensor product with weights from a table of distances",
    _reference,
    1,
    "scitoolkit.ops.tensor_product.examples:tabulated_examples",
)


def _prepare(spec: str, dtype: torch.dtype) -> None:
    operators.prepare(spec, dtype)
    interpolation.kernels("", dtype)


def _source(spec: str, dtype: torch.dtype) -> str:
    return f"{operators.source(spec, dtype)}\n{interpolation.source('', dtype)}"


@GeneratedC.serve(OPERATION.name, prepare=_prepare, source=_source)
def _on_cpu(
    x: Tensor,
    y: Tensor,
    distances: Tensor,
    grid: EquidistantGrid,
    coefficients: Tensor,
    edges: Edges,
    spec: TensorProductSpec,
) -> Tensor:
    if not is_eager(x, y, distances, coefficients):
        place = Placement.build(grid, distances)
        weights = interpolation.piecewise_polynomial(coefficients, place)
        product = FUNCTIONS[GeneratedC.name, "tensor_product"]
        return product(x, y, weights, edges, spec, False, True)
    tensors = (tensor.contiguous() for tensor in (x, y, distances, coefficients))
    return _recorded(*tensors, grid, edges, spec)


Placed = list[tuple[EdgePart, Placement]]


def _placed(
    distances: Tensor, grid: EquidistantGrid, edges: Edges, spec: TensorProductSpec
) -> Placed:
    """Return the parts of the edges, each with the placement of its distances on the grid."""
    row = max(1, spec.weight_numel) * distances.element_size()
    parts = edges.parts(max(FEWEST_EDGES, WEIGHT_BYTES // row))
    return [(part, Placement.build(grid, distances[part.index])) for part in parts]


def _run(
    x: Tensor,
    y: Tensor,
    distances: Tensor,
    coefficients: Tensor,
    grid: EquidistantGrid,
    edges: Edges,
    spec: TensorProductSpec,
) -> Tensor:
    out = x.new_zeros(x.shape[0], spec.dim_out)
    for part, place in _placed(distances, grid, edges, spec):
        weights = interpolation.piecewise_polynomial(coefficients, place)
        operators.launch("forward", spec.text, False, part.graph, (x, y[part.index], weights), out)
    return out


def _gradients(
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    distances: Tensor,
    coefficients: Tensor,
    grid: EquidistantGrid,
    edges: Edges,
    spec: TensorProductSpec,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with respect to (x, y, distances)."""
    gx, gy, gr = (torch.zeros_like(tensor) for tensor in (x, y, distances))
    for part, place in _placed(distances, grid, edges, spec):
        weights = interpolation.piecewise_polynomial(coefficients, place)
        _, gy[part.index], gw = operators.first_derivatives(
            grad, x, y[part.index], weights, part.graph, spec.text, False, gx
        )
        gr[part.index] = interpolation.slopes(gw, coefficients, place) / grid.step
    return gx, gy, gr


def _save(ctx, inputs, output) -> None:
    *tensors, ctx.grid, ctx.edges, ctx.spec = inputs
    ctx.save_for_backward(*tensors)


def _backward_of_run(ctx, grad):
    others = (ctx.grid, ctx.edges, ctx.spec)
    gradients = _recorded_gradients(grad.contiguous(), *ctx.saved_tensors, *others)
    return *gradients, None, None, None, None


_recorded_gradients = refusing("tabulated_convolution beyond the first", _gradients)
_recorded = eager(_run, _save, _backward_of_run)

"""The convolution with weights from a table equals the one that is given the table's values."""

import pytest
import torch

from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.ops.interpolation import EquidistantGrid, Placement, piecewise_polynomial
from scitoolkit.ops.tensor_product import (
    Edges,
    TensorProductSpec,
    tabulated_convolution,
    tensor_product_convolution,
)
from scitoolkit.ops.tensor_product import tabulated as module

SPEC = TensorProductSpec.channelwise("4x0e + 4x1o", "0e + 1o + 2e", "0e + 1o + 2e")
NODES, EDGES = 9, 70
GRID = EquidistantGrid(3.0, 20)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(module, "WEIGHT_BYTES", 1)
    monkeypatch.setattr(module, "FEWEST_EDGES", 11)


def problem(dtype=torch.float64, ordered=True, nodes=NODES, edges=EDGES):
    r = torch.Generator().manual_seed(0)
    sender, receiver = torch.randint(0, nodes, (2, edges), generator=r)
    receiver = torch.where(receiver == 4, 5, receiver)  # a node without edges
    graph = Edges.build(sender, receiver.sort().values if ordered else receiver, nodes)
    shapes = (nodes, SPEC.dim_in1), (edges, SPEC.dim_in2)
    tensors = [torch.randn(s, generator=r, dtype=dtype) for s in shapes]
    tensors.append(0.2 + 3 * torch.rand(edges, generator=r, dtype=dtype))  # some beyond the end
    values = torch.randn(21, SPEC.weight_numel, generator=r, dtype=torch.float64)
    table = GRID.coefficients(values, dtype)
    return graph, table, [each.requires_grad_() for each in tensors]


def stored(x, y, distances, graph, table):
    weights = piecewise_polynomial(table, Placement.build(GRID, distances))
    return tensor_product_convolution(SPEC, x, y, weights, graph)


def streamed(x, y, distances, graph, table):
    return tabulated_convolution(SPEC, x, y, distances, GRID, table, graph)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_stored_weights_with_gradients(ordered, dtype):
    graph, table, tensors = problem(dtype, ordered)
    assert len(graph.parts(11)) > 4
    outs = [function(*tensors, graph, table) for function in (streamed, stored)]
    probe = torch.linspace(-1, 1, outs[0].numel(), dtype=dtype).view_as(outs[0])
    found, wanted = ([out, *torch.autograd.grad(out, tensors, probe)] for out in outs)
    limit = 1e-12 if dtype == torch.float64 else 1e-5
    for one, other in zip(found, wanted, strict=True):
        assert (one - other).abs().max() <= limit * other.abs().max()


def test_gradients_by_differences_and_no_second_ones():
    graph, table, tensors = problem(edges=14, nodes=4)
    assert torch.autograd.gradcheck(lambda *t: streamed(*t, graph, table), tensors)
    out = streamed(*tensors, graph, table)
    (slope,) = torch.autograd.grad(out.sum(), tensors[2], create_graph=True)
    with pytest.raises(BackendError, match="no derivative"):
        torch.autograd.grad(slope.sum(), tensors[0])


def test_edges_beyond_the_table_add_nothing():
    graph, table, (x, y, distances) = problem()
    far = distances.detach() > GRID.end
    assert far.any()
    moved = torch.where(far, distances.detach() + 5, distances.detach())
    one, other = (streamed(x, y, r, graph, table) for r in (distances, moved))
    assert torch.equal(one, other)


def test_what_cannot_be_is_refused_by_name():
    graph, table, (x, y, distances) = problem()
    with pytest.raises(DataError, match="coefficients require grad"):
        streamed(x, y, distances, graph, table.requires_grad_())
    with pytest.raises(DataError, match="coefficients"):
        streamed(x, y, distances, graph, torch.zeros(9, 8, SPEC.weight_numel).double())
    shared = TensorProductSpec.channelwise("4x0e", "0e", "0e", shared_weights=True)
    with pytest.raises(ConfigError, match="shared weights"):
        tabulated_convolution(shared, x, y, distances, GRID, table, graph)

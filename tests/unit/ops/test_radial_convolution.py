"""The convolution that makes its weights as it goes equals the one that is given them."""

import pytest
import torch

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.tensor_product import (
    Edges,
    TensorProductSpec,
    radial_convolution,
    tensor_product_convolution,
)
from scitoolkit.ops.tensor_product import radial as module

SPEC = TensorProductSpec.channelwise("4x0e + 4x1o", "0e + 1o + 2e", "0e + 1o + 2e")
NODES, EDGES, HIDDEN = 9, 70, 5


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(module, "WEIGHT_BYTES", 1)
    monkeypatch.setattr(module, "FEWEST_EDGES", 11)


def problem(dtype=torch.float64, ordered=True, nodes=NODES, edges=EDGES, seed=0):
    r = torch.Generator().manual_seed(seed)
    sender, receiver = torch.randint(0, nodes, (2, edges), generator=r)
    receiver = torch.where(receiver == 4, 5, receiver)  # a node without edges
    graph = Edges.build(sender, receiver.sort().values if ordered else receiver, nodes)
    shapes = (nodes, SPEC.dim_in1), (edges, SPEC.dim_in2), (edges, HIDDEN)
    tensors = [torch.randn(s, generator=r, dtype=dtype) for s in shapes]
    tensors.append(torch.randn(HIDDEN, SPEC.weight_numel, generator=r, dtype=dtype))
    return graph, [each.requires_grad_() for each in tensors]


def plain(x, y, hidden, last, graph):
    return tensor_product_convolution(SPEC, x, y, hidden @ last, graph)


def fused(x, y, hidden, last, graph):
    return radial_convolution(SPEC, x, y, hidden, last, graph)


def all_orders(function, graph, tensors):
    """Output, first and second derivatives of a function of these that has all of them."""
    out = function(*tensors, graph)
    probe = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out).requires_grad_()
    first = torch.autograd.grad(out, tensors, probe, create_graph=True)
    scalar = sum((each * torch.cos(each.detach())).sum() for each in first)
    return [out, *first, *torch.autograd.grad(scalar, [*tensors, probe])]


@pytest.mark.parametrize("ordered", [True, False])
def test_equals_stored_weights_in_all_derivatives(ordered):
    graph, tensors = problem(ordered=ordered)
    assert len(graph.parts(11)) > 4
    got, want = all_orders(fused, graph, tensors), all_orders(plain, graph, tensors)
    for a, b in zip(got, want, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_gradients_by_differences():
    graph, tensors = problem(edges=14, nodes=4)
    assert torch.autograd.gradcheck(lambda *t: fused(*t, graph), tensors)
    assert torch.autograd.gradgradcheck(lambda *t: fused(*t, graph), tensors)


def test_any_subset_may_want_gradients():
    graph, tensors = problem()
    for wanted in range(4):
        some = [t.detach().requires_grad_(i == wanted) for i, t in enumerate(tensors)]
        got = torch.autograd.grad(fused(*some, graph).square().sum(), some[wanted])[0]
        want = torch.autograd.grad(plain(*some, graph).square().sum(), some[wanted])[0]
        assert torch.allclose(got, want, rtol=1e-11, atol=1e-11)


def test_the_number_of_threads_does_not_matter():
    graph, tensors = problem(nodes=60, edges=1500)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(all_orders(fused, graph, tensors))
    finally:
        torch.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()
    assert torch.equal(found[0][0], found[1][0])


def test_no_edges_and_no_nodes():
    for nodes, edges in ((3, 0), (0, 0)):
        index = torch.zeros(edges, dtype=torch.long)
        shapes = (nodes, SPEC.dim_in1), (edges, SPEC.dim_in2), (edges, HIDDEN)
        last = torch.ones(HIDDEN, SPEC.weight_numel)
        arguments = [torch.ones(shape) for shape in shapes]
        out = fused(*arguments, last, Edges.build(index, index, nodes))
        assert out.shape == (nodes, SPEC.dim_out)
        assert not out.any()


def test_what_does_not_fit_is_named():
    graph, (x, y, hidden, last) = problem()
    with pytest.raises(DataError, match=r"last of shape \(5, \d+\), got \(5, 3\)"):
        fused(x, y, hidden, last[:, :3], graph)
    with pytest.raises(DataError, match=r"hidden of shape \(70, H\), got \(69, 5\)"):
        fused(x, y, hidden[1:], last, graph)
    with pytest.raises(DataError, match=r"hidden of torch\.float64"):
        fused(x, y, hidden.float(), last, graph)
    shared = TensorProductSpec.build(
        "1x0e", "0e", "1x0e", [(0, 0, 0, "uvu", True)], shared_weights=True
    )
    with pytest.raises(ConfigError, match="shared weights"):
        radial_convolution(shared, x, y, hidden, last, graph)

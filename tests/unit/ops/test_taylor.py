"""Streams of derivatives against nested automatic differentiation, in float64."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from scitoolkit.ops import taylor

# torch's own forward-mode rules are compiled by what torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
SMOOTH = ["softplus", "sigmoid", "tanh", "sin", "silu", "gelu"]


def nested(function, x, index):
    """Return the derivative of a function of one point, by forward mode over forward mode."""
    for coordinate, order in enumerate(index):
        for _ in range(order):
            function = _slope(function, torch.eye(len(x), dtype=x.dtype)[coordinate])
    return function(x)


def _slope(function, direction):
    return lambda x: torch.func.jvp(function, (x,), (direction,))[1]


def network(activation, widths=(3, 7, 6, 2)):
    torch.manual_seed(0)
    layers = [nn.Linear(a, b, dtype=torch.float64) for a, b in itertools.pairwise(widths)]

    def streams(x, plan):
        s = taylor.seed(x, plan)
        for number, layer in enumerate(layers):
            s = taylor.linear(s, layer.weight, layer.bias)
            if number < len(layers) - 1:
                s = taylor.activation(s, activation, plan)
        return s

    def plain(x):
        for number, layer in enumerate(layers):
            x = layer(x)
            if number < len(layers) - 1:
                x = taylor.derivatives(activation, x, 0)[0]
        return x

    return layers, streams, plain


@pytest.mark.parametrize("activation", SMOOTH)
def test_all_derivatives_up_to_third_order(activation):
    indices = [i for i in itertools.product(range(4), repeat=3) if 0 < sum(i) <= 3]
    plan = taylor.make_plan(3, indices)
    _, streams, plain = network(activation)
    x = torch.randn(4, 3, dtype=torch.float64)
    found = streams(x, plan)
    assert torch.allclose(found[0], torch.stack([plain(p) for p in x]))
    for index in indices:
        wanted = torch.stack([nested(plain, p, index) for p in x])
        assert torch.allclose(found[plan.index(index)], wanted, rtol=1e-9, atol=1e-11), index


@pytest.mark.parametrize("activation", [*SMOOTH, "rsqrt"])
def test_an_activations_derivatives_are_each_others_slopes(activation):
    x = torch.linspace(0.2, 2.0, 9, dtype=torch.float64, requires_grad=True)
    values = taylor.derivatives(activation, x, 5)
    for lower, higher in itertools.pairwise(values):
        (slope,) = torch.autograd.grad(lower.sum(), x, retain_graph=True)
        assert torch.allclose(slope, higher, rtol=1e-8, atol=1e-10)


def test_a_laplacian_is_one_stream_and_equals_its_parts():
    laplacian = taylor.operator({(2, 0, 0): 1.0, (0, 2, 0): 0.5})
    whole, parts = taylor.make_plan(3, [laplacian]), taylor.make_plan(3, [(2, 0, 0), (0, 2, 0)])
    assert len(whole) == 4
    assert len(parts) == 5
    _, streams, _ = network("softplus")
    x = torch.randn(5, 3, dtype=torch.float64)
    one, two = streams(x, whole), streams(x, parts)
    wanted = two[parts.index((2, 0, 0))] + 0.5 * two[parts.index((0, 2, 0))]
    assert torch.allclose(one[whole.index(laplacian)], wanted)


def test_operators_of_mixed_order_are_the_sums_of_their_parts():
    mixed = taylor.operator({(1, 0, 0): 0.5, (0, 2, 0): -1.0, (1, 0, 1): 2.0})
    whole = taylor.make_plan(3, [mixed])
    parts = taylor.make_plan(3, [(1, 0, 0), (0, 2, 0), (1, 0, 1)])
    _, streams, _ = network("tanh")
    x = torch.randn(5, 3, dtype=torch.float64)
    one, two = streams(x, whole), streams(x, parts)
    wanted = sum(c * two[parts.index(i)] for i, c in mixed)
    assert torch.allclose(one[whole.index(mixed)], wanted)


@pytest.mark.parametrize("index", [(1, 1, 0), (0, 0, 3)])
def test_gradients_of_a_loss_of_derivatives(index):
    plan = taylor.make_plan(3, [index])
    layers, streams, plain = network("tanh")
    x = torch.randn(4, 3, dtype=torch.float64)
    weights = [p for layer in layers for p in layer.parameters()]
    loss = (streams(x, plan)[plan.index(index)] ** 2).mean()
    wanted = (torch.stack([nested(plain, p, index) for p in x]) ** 2).mean()
    for a, b in zip(
        torch.autograd.grad(loss, weights, allow_unused=True),
        torch.autograd.grad(wanted, weights, allow_unused=True),
        strict=True,
    ):
        assert (a is None or a.abs().max() < 1e-14) if b is None else torch.allclose(a, b)


def test_the_backward_pass_of_an_activation_is_its_gradient():
    plan = taylor.make_plan(2, [(2, 1), (0, 2)])
    a = torch.randn(len(plan), 3, dtype=torch.float64, requires_grad=True)
    for name in SMOOTH:
        assert torch.autograd.gradcheck(lambda s, n=name: taylor.activation(s, n, plan), (a,))


def test_products_and_layer_norm():
    plan = taylor.make_plan(2, [(2, 0), (1, 1)])
    torch.manual_seed(1)
    weight = torch.randn(5, 2, dtype=torch.float64)
    scale, shift = torch.rand(5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)

    def plain(x):
        # Written out: second forward derivatives of torch's own layer norm are wrong in 2.13.
        y = torch.sin(weight @ x)
        centred = y - y.mean()
        return centred * torch.rsqrt((centred**2).mean() + 1e-5) * scale + shift

    x = torch.randn(3, 2, dtype=torch.float64)
    s = taylor.activation(taylor.linear(taylor.seed(x, plan), weight), "sin", plan)
    found = taylor.layer_norm(s, scale, shift, plan)
    own = nn.functional.layer_norm(torch.sin(x @ weight.T), (5,), scale, shift)
    assert torch.allclose(found[0], own)
    for index in [(0, 0), (1, 0), (2, 0), (1, 1)]:
        wanted = torch.stack([nested(plain, p, index) for p in x])
        assert torch.allclose(found[plan.index(index)], wanted, rtol=1e-8, atol=1e-9), index


def test_streams_are_what_the_wanted_derivatives_need_and_no_more():
    assert len(taylor.make_plan(3, [])) == 1
    assert len(taylor.make_plan(3, [(0, 1, 0)])) == 2
    plan = taylor.make_plan(2, [(2, 1)])
    assert {op[0][0] for op in plan.operators} == {(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (2, 1)}

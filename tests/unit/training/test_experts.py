"""Mixtures of experts in one process; `test_mesh` has those of several."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.models.config import FieldTransformerConfig
from scitoolkit.emulation.models.transformer import FieldTransformer
from scitoolkit.training.strategies.mesh.experts import ExpertLayer, gated


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return ExpertLayer(6, 10, experts=4, chosen=2).double()


def test_a_row_is_the_weighted_sum_of_the_experts_it_chooses(layer):
    x = torch.randn(3, 5, 6, dtype=torch.float64)
    out = layer(x)
    for place in ((0, 0), (2, 4)):
        row = x[place]
        shares = (layer.router.weight @ row).softmax(0)
        expected = torch.zeros(6, dtype=torch.float64)
        for k in shares.argsort()[-2:]:
            gate, hidden = (layer.into[k] @ row).chunk(2)
            expected += shares[k] * (layer.out[k] @ (functional.silu(gate) * hidden))
        torch.testing.assert_close(out[place], expected)
    torch.testing.assert_close(layer._of_all(x), out)


def test_an_expert_that_nothing_chooses_has_a_gradient_of_zero(layer):
    with torch.no_grad():
        layer.router.weight.zero_()  # equal probabilities: the first two are chosen
    layer(torch.randn(7, 6, dtype=torch.float64)).square().sum().backward()
    used = [bool(layer.into.grad[k].any()) for k in range(4)]
    assert sum(used) == 2
    assert layer.out.grad.isfinite().all()


def test_gradients_are_those_of_differences(layer):
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (x,))
    rows, into, out = (torch.randn(s, dtype=torch.float64) for s in ((0, 6), (20, 6), (6, 10)))
    assert gated(rows, into, out).shape == (0, 6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_experts_compute_in_mixed_precision(layer, dtype):
    layer = layer.float()
    with torch.no_grad():  # probabilities far apart, so that all precisions choose the same
        layer.router.weight.copy_(torch.eye(4, 6))
    x = torch.tensor([[4.0, 2.0, 0, 0, 0.3, 0.1], [0, 1.0, 0, 3.0, -0.2, 0.5]])
    expected = layer(x)
    with torch.autocast("cpu", dtype=dtype):
        many, all_of_them = layer(x), layer._of_all(x)
    torch.testing.assert_close(many.float(), expected, rtol=0.02, atol=0.02)
    torch.testing.assert_close(all_of_them.float(), expected, rtol=0.02, atol=0.02)
    many.float().square().sum().backward()
    assert layer.into.grad.isfinite().all()
    assert bool(layer.into.grad[0].any())


def test_more_chosen_experts_than_there_are_is_refused():
    with pytest.raises(ConfigError, match="3 chosen experts of 2"):
        FieldTransformer(1, 1, ["circular"], experts=2, chosen=3)
    assert FieldTransformer(1, 1, ["circular"], width=8, heads=1).blocks[0].mixture is None


def test_chosen_without_experts_is_refused():
    with pytest.raises(ValueError, match="chosen: not used with experts: 1"):
        FieldTransformerConfig(chosen=3)
    assert FieldTransformerConfig(experts=4, chosen=3).chosen == 3

"""Attention among slices equals its definition, graph by graph."""

from __future__ import annotations

import pytest
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.physics_attention import SliceAttention, SliceTransformer


def by_definition(layer: SliceAttention, x: torch.Tensor, heads: int) -> torch.Tensor:
    """Equations 1 to 3 of Wu et al. (2024), head by head and slice by slice."""
    size = x.shape[1] // heads
    place, value, received = layer.place(x), layer.value(x), []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        w = torch.softmax(layer.share(place[:, part]) / layer.temperature[head], dim=1)
        z = torch.stack([(w[:, j, None] * value[:, part]).sum(0) for j in range(w.shape[1])])
        z = z / (w.sum(0)[:, None] + 1e-5)
        scores = layer.query(z) @ layer.key(z).T / size**0.5
        received.append(w @ (torch.softmax(scores, dim=1) @ layer.token(z)))
    return layer.out(torch.cat(received, dim=1))


@pytest.mark.parametrize(("heads", "slices"), [(1, 1), (2, 5), (4, 12)])
def test_outputs_and_derivatives_are_those_of_the_definition(heads, slices):
    torch.manual_seed(0)
    layer = SliceAttention(8, heads, slices).double()
    x = torch.randn(23, 8, dtype=torch.float64, requires_grad=True)
    answers = [layer(x), by_definition(layer, x, heads)]
    torch.testing.assert_close(*answers)
    wanted = [x, *layer.parameters()]
    slopes = [torch.autograd.grad(a.square().sum(), wanted) for a in answers]
    torch.testing.assert_close(*slopes)
    some = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(layer, some)


def test_graphs_of_a_batch_do_not_see_each_other():
    torch.manual_seed(0)
    model = SliceTransformer(3, 8, 2, layers=2, heads=2, slices=4, dropout=0.0).double().eval()
    sizes = [5, 1, 9]
    x = torch.randn(sum(sizes), 3, dtype=torch.float64)
    none = torch.zeros(2, 0, dtype=torch.int64)
    batch = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    alone = torch.cat([model(part, none) for part in x.split(sizes)])
    torch.testing.assert_close(model(x, none, batch=batch), alone)
    # A graph without nodes in between has no rows.
    torch.testing.assert_close(model(x, none, batch=batch + (batch > 0)), alone)


def test_settings_that_cannot_be_built_are_refused():
    from scitoolkit.graphs.models import PhysicsAttention

    with pytest.raises((ConfigError, ValueError), match="no multiple of heads"):
        PhysicsAttention(hidden=10, heads=4)

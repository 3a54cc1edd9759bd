"""Derivatives of the whole model by forward streams against torch's own, in float64."""

from __future__ import annotations

import pytest
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.ops import taylor
from scitoolkit.superresolution.config import ImNetConfig, MLPConfig, SirenConfig
from scitoolkit.superresolution.decoder import Decoder
from scitoolkit.superresolution.encoder import Encoder
from scitoolkit.superresolution.model import MeshfreeFlowNet
from scitoolkit.superresolution.task import require_smooth

DECODERS = {
    "imnet": ImNetConfig(widths=[12, 10, 8]),
    "mlp": MLPConfig(widths=[8, 8]),
    "fourier": MLPConfig(widths=[8, 8], features=5, activation="gelu"),
    "siren": SirenConfig(widths=[8, 8]),
}


def network(decoder="imnet", weights="linear", dims=3):
    torch.manual_seed(0)
    periodic = [d == dims - 1 for d in range(dims)]
    encoder = Encoder(2, periodic, widths=[4, 8], blocks=1, stages=[], channels_out=6)
    arguments = DECODERS[decoder].arguments()
    model = MeshfreeFlowNet(
        encoder,
        Decoder(dims, 6, 2, **arguments),
        periods=[2.0 if p else None for p in periodic],
        extents=[None] * dims,
        mean=torch.tensor([0.1, -0.3]),
        std=torch.tensor([2.0, 0.5]),
        weights=weights,
    ).double()
    # Uneven nodes in the open dims: chain-rule factors differ from node to node.
    nodes = [torch.cumsum(0.2 + torch.rand(1, 4, dtype=torch.float64), 1) for _ in range(dims)]
    nodes[-1] = torch.arange(5, dtype=torch.float64)[None] * 0.4
    low = torch.randn(1, 2, *[len(n[0]) for n in nodes], dtype=torch.float64)
    ends = torch.stack([torch.stack([n[0, 0], n[0, -1]]) for n in nodes])
    ends[-1] = torch.tensor([-1.0, 3.0])  # the periodic dim may be asked for anywhere
    share = torch.rand(1, 20, dims, dtype=torch.float64)
    points = ends[:, 0] + (ends[:, 1] - ends[:, 0]) * share
    return model, low, nodes, points


def nested(model, grid, points, index):
    """Return a derivative by reverse mode over reverse mode."""
    points = points.clone().requires_grad_()
    out = model.query(grid, points)[0]
    columns = []
    for field in out.unbind(-1):
        for dim, order in enumerate(index):
            for _ in range(order):
                (slope,) = torch.autograd.grad(field.sum(), points, create_graph=True)
                field = slope[..., dim]
        columns.append(field)
    return torch.stack(columns, -1)


@pytest.mark.parametrize("weights", ["linear", "smooth"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_all_derivatives_of_the_blended_field(decoder, weights):
    model, low, nodes, points = network(decoder, weights)
    grid = model.encode(low, nodes)
    indices = [(1, 0, 0), (0, 0, 1), (0, 2, 0), (0, 1, 1), (0, 0, 3)]
    plan = taylor.make_plan(3, indices)
    found = model.query(grid, points, plan)
    assert torch.allclose(found[0], model.query(grid, points)[0], rtol=1e-12)
    for index in indices:
        wanted = nested(model, grid, points, index)
        assert torch.allclose(found[plan.index(index)], wanted, rtol=1e-8, atol=1e-9), index


@pytest.mark.parametrize("dims", [1, 2, 4])
def test_other_numbers_of_dims(dims):
    model, low, nodes, points = network("mlp", dims=dims)
    grid = model.encode(low, nodes)
    index = (*[0] * (dims - 1), 2)
    plan = taylor.make_plan(dims, [index])
    found = model.query(grid, points, plan)[plan.index(index)]
    assert torch.allclose(found, nested(model, grid, points, index), rtol=1e-8, atol=1e-9)


def test_points_in_blocks_are_the_same_points(monkeypatch):
    model, low, nodes, points = network("mlp")
    grid = model.encode(low, nodes)
    plan = taylor.make_plan(3, [(0, 2, 0)])
    whole = model.query(grid, points, plan)
    monkeypatch.setattr("scitoolkit.superresolution.model._VALUES_AT_ONCE", 1)
    blocks = model.query(grid, points, plan)  # of 16 and 4 points
    assert torch.allclose(whole, blocks, rtol=1e-12, atol=1e-12)


def test_parameter_gradients_of_a_loss_of_second_derivatives():
    model, low, nodes, points = network()
    laplacian = taylor.operator({(0, 2, 0): 1.0, (0, 0, 2): 1.0})
    plan = taylor.make_plan(3, [laplacian])
    model.query(model.encode(low, nodes), points, plan)[
        plan.index(laplacian)
    ].square().mean().backward()
    ours = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    grid = model.encode(low, nodes)
    total = nested(model, grid, points, (0, 2, 0)) + nested(model, grid, points, (0, 0, 2))
    total.square().mean().backward()
    wanted = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(ours) == len(wanted)
    for a, b in zip(ours, wanted, strict=True):
        assert (a - b).norm() <= 1e-9 * max(1.0, float(b.norm()))


@pytest.mark.parametrize(("weights", "jumps"), [("linear", True), ("smooth", False)])
def test_only_linear_weights_let_derivatives_jump_at_cell_faces(weights, jumps):
    model, low, nodes, points = network("mlp", weights)
    grid = model.encode(low, nodes)
    plan = taylor.make_plan(3, [(0, 2, 0)])
    face = points.clone()
    face[..., 1] = nodes[1][0, 1]
    shift = torch.tensor([0, 1e-9, 0], dtype=torch.float64)
    below, above = (model.query(grid, face + s * shift, plan) for s in (-1, 1))
    assert torch.allclose(below[0], above[0], atol=1e-6)
    assert torch.allclose(below, above, atol=1e-4) != jumps


def test_activations_without_a_second_derivative_are_refused():
    require_smooth("softplus", 4)
    require_smooth("relu", 1)
    with pytest.raises(ConfigError, match=r"no derivative of order 2[\s\S]*softplus"):
        require_smooth("leaky_relu", 2)
    with pytest.raises(ConfigError, match="no derivatives are implemented"):
        require_smooth("mish", 1)

from __future__ import annotations

import pytest
import torch
from torch import nn

from scitoolkit.training import TrainingConfig
from scitoolkit.training.optim.muon import MuonAdam, is_matrix, orthogonalize


@pytest.mark.parametrize("shape", [(20, 50), (50, 20), (32, 32)])
def test_singular_vectors_stay_and_values_come_near_one(shape):
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    matrix = left @ torch.diag(torch.logspace(-1, 1, min(shape))) @ right
    inside = left.T @ orthogonalize(matrix) @ right.T
    assert (inside.diagonal() > 0.3).all()
    assert (inside.diagonal() < 1.5).all()
    assert (inside - torch.diag(inside.diagonal())).abs().max() < 1e-3


def test_what_is_no_wide_matrix_is_left_to_adam():
    weights = {
        "conv": torch.zeros(32, 8, 3, 3),
        "bias": torch.zeros(64),
        "head": torch.zeros(3, 64, 3, 3),
        "modes": torch.zeros(4096),
    }
    assert [name for name, w in weights.items() if is_matrix(w)] == ["conv"]
    own, reference = (nn.Parameter(torch.linspace(-1, 1, 8)) for _ in range(2))
    mine = MuonAdam([own], lr=0.01, betas=(0.9, 0.99))
    adam = torch.optim.Adam([reference], lr=0.01, betas=(0.9, 0.99))
    for step in range(5):
        for parameter, optimizer in ((own, mine), (reference, adam)):
            parameter.grad = torch.cos(parameter.detach() * (step + 1))
            optimizer.step()
    assert torch.allclose(own, reference, atol=1e-6)


def test_an_ill_conditioned_problem_takes_fewer_steps_than_with_adam():
    torch.manual_seed(0)
    scales = torch.logspace(-2, 0, 32)
    inputs = torch.randn(256, 32) * scales
    target = inputs @ torch.randn(32, 32).T

    def loss_after(name):
        torch.manual_seed(1)
        net = nn.Linear(32, 32, bias=False)
        optimizer = TrainingConfig(optimizer={"name": name, "lr": 0.01}).optimizer.build(
            net.parameters()
        )
        for _ in range(60):
            optimizer.zero_grad()
            loss = ((net(inputs) - target) ** 2).mean()
            loss.backward()
            optimizer.step()
        return loss.item()

    assert loss_after("muon") < 0.5 * loss_after("adam")


def test_sharded_matrices_are_refused():
    with pytest.raises(ValueError, match="muon needs whole parameters"):
        TrainingConfig(optimizer={"name": "muon"}, strategy="sharded")


@pytest.mark.parametrize("shape", [(0, 16), (16, 0), (0, 3, 3), (1, 1), (1, 64)])
def test_an_empty_or_single_row_matrix_is_left_to_adam(shape):
    weight = nn.Parameter(torch.ones(shape))
    assert not is_matrix(weight)
    weight.grad = torch.ones(shape)
    MuonAdam([weight], lr=0.01).step()
    assert torch.isfinite(weight).all()


@pytest.mark.parametrize("size", [1e10, 1e20, 1e30])
def test_large_gradients_give_the_update_of_small_ones(size):
    matrix = torch.randn(20, 30, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        orthogonalize(size * matrix), orthogonalize(matrix), rtol=1e-4, atol=1e-4
    )
    assert not orthogonalize(torch.zeros(20, 30)).any()

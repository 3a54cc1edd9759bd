"""The closure that is trained through a solver: its symmetries, and the solver in C with it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[3] / "benchmarks" / "deploy"


@pytest.fixture
def closure(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import learned_closure

    yield learned_closure
    sys.modules.pop("learned_closure")


@pytest.fixture
def network(closure):
    torch.manual_seed(1)
    network = closure.FaceNetwork()
    torch.nn.init.normal_(network.layers[-1].weight, std=0.02)
    return network


def waves(closure, count: int) -> torch.Tensor:
    x = torch.arange(closure.CELLS) * closure.DX
    return torch.stack([torch.sin(x + k) + 0.5 * torch.cos((2 + k) * x) for k in range(count)])


def test_the_flux_has_the_symmetries_of_the_equation(closure, network):
    u, flux = waves(closure, 3), closure.through(network)
    with torch.no_grad():
        own = flux(u)
        torch.testing.assert_close(flux(u + 2.0), own, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(flux(-u.flip(-1)).flip(-1).roll(-1, -1), own)
        torch.testing.assert_close(flux(u.roll(5, -1)), own.roll(5, -1))
    assert own.abs().max() > 1e-3


def test_the_solver_in_c_is_that_of_training(closure, network, tmp_path):
    starts = waves(closure, 2)
    with torch.no_grad():
        wanted = closure.rollout(starts, closure.through(network), closure.FRAMES)[:, -1].numpy()
    own = closure.in_c(network, starts, tmp_path)
    np.testing.assert_allclose(own, wanted, atol=1e-4 * np.abs(wanted).max())
    without = closure.rollout(starts, closure.smagorinsky(0.0), closure.FRAMES)[:, -1].numpy()
    assert np.abs(own - without).max() > 1e-2


def test_training_through_the_solver_lowers_the_error_of_rollouts(closure, monkeypatch):
    monkeypatch.setattr(closure, "UPDATES", 12)
    with torch.no_grad():  # of a closure that the network can learn
        states = closure.rollout(waves(closure, 4), closure.smagorinsky(1.0), closure.FRAMES)
    network = closure.trained(states)
    with torch.no_grad():
        runs = [
            closure.rollout(states[:, 0], flux, closure.FRAMES)
            for flux in (closure.through(network), closure.smagorinsky(0.0))
        ]
        own, none = (float(closure.errors(made, states).mean()) for made in runs)
    assert own < 0.8 * none

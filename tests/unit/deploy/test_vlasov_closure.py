"""The heat flux that is trained through a fluid solver: its symmetries, and the solver in C."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[3] / "benchmarks" / "deploy"


@pytest.fixture
def closure(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import vlasov_closure

    yield vlasov_closure
    sys.modules.pop("vlasov_closure")


@pytest.fixture
def network(closure):
    torch.manual_seed(1)
    network = closure.HeatFlux().double()
    torch.nn.init.normal_(network.linear.weight, std=0.02)
    torch.nn.init.normal_(network.layers[-1].weight, std=0.02)
    return network


def wave(closure, amplitude: float) -> torch.Tensor:
    """Return a state (1, 4, cells) of density, velocity, pressure and field."""
    x = torch.arange(closure.CELLS, dtype=torch.float64) * 2 * math.pi / closure.CELLS
    parts = [1 + amplitude * torch.cos(x), amplitude * torch.sin(x + 1)]
    return torch.stack([*parts, 1 + 2 * amplitude * torch.cos(x + 2), -amplitude * torch.sin(x)])[
        None
    ]


def test_the_flux_has_the_symmetries_of_the_equations(closure, network):
    state, k = wave(closure, 0.03), torch.full((1, 1), 0.4, dtype=torch.float64)
    flux = closure.through(network)
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)[:, None]
    with torch.no_grad():
        own = flux(state, k)
        torch.testing.assert_close(flux(state.roll(5, -1), k), own.roll(5, -1))
        torch.testing.assert_close(flux(state.flip(-1) * signs, k), -own.flip(-1))
        half = flux(wave(closure, 0.015), k)
        torch.testing.assert_close(half, own / 2, rtol=0.05, atol=0.02 * float(own.abs().max()))
    assert own.abs().max() > 1e-3


def test_the_solver_in_c_is_that_of_training(closure, network, tmp_path, monkeypatch):
    monkeypatch.setattr(closure, "FRAMES", 40)
    states = torch.cat([wave(closure, 0.03), wave(closure, 0.01)])
    k = torch.tensor([[0.4], [0.6]], dtype=torch.float64)
    with torch.no_grad():
        wanted = closure.rollout(states, k, closure.through(network), 40)[:, -1].numpy()
        without = closure.rollout(states, k, closure.without, 40)[:, -1].numpy()
    own = closure.in_c(network, states, k, tmp_path)
    np.testing.assert_allclose(own, wanted, atol=1e-9)
    assert np.abs(own - without).max() > 1e-4


def test_hammett_and_perkins_flux_opposes_the_gradient_of_the_temperature(closure):
    state, k = wave(closure, 0.03), torch.full((1, 1), 0.4, dtype=torch.float64)
    flux = closure.hammett_perkins(state, k)
    temperature = state[:, 2] / state[:, 0]
    assert (flux * closure.slope(temperature, k)).sum() < 0

from __future__ import annotations

import numpy as np
import pytest
import torch

from scitoolkit.forecasting.corrections import lead_factors
from scitoolkit.forecasting.lstm import NetworkEnsemble, PodLSTM, fit_in_memory
from scitoolkit.forecasting.task import ForecastTask


@pytest.mark.parametrize("head", ["all_steps", "last_state", "encoder_decoder"])
@pytest.mark.parametrize("layers", [1, 2])
def test_every_head_gives_leads_and_learns(head, layers):
    torch.manual_seed(0)
    network = PodLSTM(3, 2, inputs=6, leads=4, hidden=8, layers=layers, head=head)
    x = torch.randn(32, 6, 3)
    y = x[:, :1, :2].expand(-1, 4, -1)
    before = float(((network(x) - y) ** 2).mean().detach())
    fit_in_memory(network, x, y, epochs=150, lr=1e-2)
    assert network(x).shape == (32, 4, 2)
    assert float(((network(x) - y) ** 2).mean().detach()) < 0.9 * before


def test_the_loss_is_the_mean_over_members():
    members = [PodLSTM(2, 2, inputs=4, leads=3, hidden=4) for _ in range(2)]
    batch = {"inputs": torch.randn(5, 4, 2), "targets": torch.randn(5, 3, 2)}
    loss, _ = ForecastTask(NetworkEnsemble(members)).loss(batch)
    each = [((m(batch["inputs"]) - batch["targets"]) ** 2).mean() for m in members]
    torch.testing.assert_close(loss, sum(each) / 2)
    assert "loss" in ForecastTask(NetworkEnsemble(members)).metrics(batch)


def test_a_correction_without_skill_is_switched_off():
    rng = np.random.default_rng(0)
    residual = rng.normal(size=(60, 4, 10))
    assert (lead_factors(residual, -residual) == 0).all()
    assert (lead_factors(residual, rng.normal(size=residual.shape)) < 0.2).all()
    assert (lead_factors(residual, residual) > 0.999).all()
    noisy = residual + 0.3 * rng.normal(size=residual.shape)
    assert (lead_factors(residual, noisy) > 0.8).all()

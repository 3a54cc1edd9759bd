"""The number of parameters by formula is that of the networks."""

from __future__ import annotations

import pytest

from scitoolkit.forecasting import ForecastingConfig
from scitoolkit.forecasting.lstm import make_ensemble
from scitoolkit.forecasting.parameters import num_parameters

CHAIN = {"nodes": [6, 0, 9], "skips": [[0, 1], [1, 3], [0, 2], [0, 3]]}
EMPTY = {"nodes": [0], "skips": []}


@pytest.mark.parametrize("head", ["all_steps", "last_state", "encoder_decoder"])
@pytest.mark.parametrize(
    "model", [{"hidden": 7, "layers": 3}, {"architecture": CHAIN}, {"architecture": EMPTY}]
)
@pytest.mark.parametrize("seasonal", [True, False])
def test_formula_counts_what_the_network_has(head, model, seasonal):
    config = ForecastingConfig(
        data={"path": "x.nc", "variable": "x"},
        inputs=5,
        leads=4,
        ensemble=2,
        model={"head": head, **model},
    )
    network = make_ensemble(
        config.model,
        3,
        config.inputs,
        config.leads,
        seasonal=seasonal,
        members=config.ensemble,
        seed=0,
    )
    assert num_parameters(config, 3, seasonal) == sum(p.numel() for p in network.parameters())

from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.forecasting.forecasters import forecasters
from scitoolkit.testing import ForecasterContract
from scitoolkit.testing.forecaster import wave_setting

SETTINGS = {
    "lstm": {"epochs": 2, "members": 1, "network": {"hidden": 4}},
    "stacking": {"members": ["damped_anomaly", "pod_ridge", "persistence"]},
    "reservoir": {"size": 40, "penalty": 0.01},
}


@pytest.mark.parametrize("name", forecasters.names(), scope="class")
class TestEveryForecaster(ForecasterContract):
    @pytest.fixture
    def config(self, name):
        return forecasters.get(name).model_validate({"name": name, **SETTINGS.get(name, {})})


@pytest.mark.parametrize(
    ("name", "most"),
    [("linear", 0.3), ("hankel_dmd", 0.4), ("pod_ridge", 0.3), ("damped_pod_ridge", 0.3),
     ("identified_ode", 0.4), ("quadratic_map", 0.4), ("reservoir", 0.6)],
)  # fmt: skip
def test_travelling_waves_are_forecast(name, most):
    """Noise of 0.1 on waves of 0.8: models of the modes' rotation come near the noise."""
    contract = ForecasterContract()
    config = forecasters.get(name).model_validate({"name": name, **SETTINGS.get(name, {})})
    tuned = config.candidates(wave_setting())[-1]
    truth, forecast = contract.fitted_and_forecast(tuned)
    assert float(np.sqrt(((truth - forecast) ** 2).mean())) < most

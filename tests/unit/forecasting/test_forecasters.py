from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.forecasting.forecasters import forecasters
from scitoolkit.forecasting.windows import all_windows
from scitoolkit.testing import ForecasterContract
from scitoolkit.testing.forecaster import wave_setting

SETTINGS = {
    "lstm": {"epochs": 2, "members": 1, "network": {"hidden": 4}},
    "stacking": {"members": ["damped_anomaly", "pod_ridge", "persistence"]},
    "reservoir": {"size": 40, "penalty": 0.01},
    "sensors": {"count": 4},
}


@pytest.mark.parametrize("name", forecasters.names(), scope="class")
class TestEveryForecaster(ForecasterContract):
    @pytest.fixture
    def config(self, name):
        return forecasters.get(name).model_validate({"name": name, **SETTINGS.get(name, {})})


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("linear", 0.3),
        ("hankel_dmd", 0.4),
        ("pod_ridge", 0.3),
        ("damped_pod_ridge", 0.3),
        ("identified_ode", 0.4),
        ("quadratic_map", 0.4),
        ("reservoir", 0.6),
        ("sensors", 0.35),
    ],
)
def test_travelling_waves_are_forecast(name, most):
    """Noise of 0.1 on waves of 0.8: models of the modes' rotation come near the noise."""
    contract = ForecasterContract()
    config = forecasters.get(name).model_validate({"name": name, **SETTINGS.get(name, {})})
    tuned = config.candidates(wave_setting())[-1]
    truth, forecast = contract.fitted_and_forecast(tuned)
    assert float(np.sqrt(((truth - forecast) ** 2).mean())) < most


def test_a_forecast_from_sensors_reads_no_other_cell():
    contract = ForecasterContract()
    config = forecasters.get("sensors")(count=4, penalty=1e-2)
    setting, train, rest = contract.parts(config)
    model, windows = config.build(setting).fit(train), all_windows(rest, setting.inputs, 2)
    other = np.setdiff1d(np.arange(windows.series.values.shape[1]), model.cells_)
    changed = windows.series.values.copy()
    changed[:, other] = 1e3
    assert len(model.cells_) == 4
    np.testing.assert_array_equal(
        model.predict(windows.with_values(changed)), model.predict(windows)
    )


@pytest.mark.parametrize("name", forecasters.names())
def test_every_forecaster_has_a_label_before_its_settings_are_chosen(name):
    family = forecasters.get(name)
    config = family.model_validate({"name": name, **SETTINGS.get(name, {})})
    assert config.label().startswith((family.title, "climatology"))
    corrected = forecasters.get("lstm")(base=config)
    assert corrected.label() == f"{config.label()} + POD-LSTM"


def test_lags_beyond_the_input_steps_are_refused_by_name():
    config = forecasters.get("linear")(lags=99)
    setting = wave_setting()
    assert config.refuses(setting) == f"99 lags exceed the {setting.inputs} input steps"

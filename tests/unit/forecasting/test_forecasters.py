from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.forecasting.forecasters import forecasters
from scitoolkit.forecasting.forecasters.base import stored_config
from scitoolkit.forecasting.windows import all_windows
from scitoolkit.testing import ForecasterContract
from scitoolkit.testing.forecaster import wave_setting

SETTINGS = {
    "lstm": {"epochs": 2, "members": 1, "network": {"hidden": 4}},
    "stacking": {"members": ["damped_anomaly", "pod_ridge", "persistence"]},
    "reservoir": {"size": 40, "penalty": 0.01},
    "sensors": {"count": 4},
}


def configurations():
    """Return all rows of `auto`, and the forecasters that are fitted only if named."""
    for name in forecasters.names():
        if name in SETTINGS:
            yield stored_config({"name": name, **SETTINGS[name]})
        else:
            yield from forecasters.get(name).variants()


@pytest.mark.parametrize(
    "config", list(configurations()), indirect=True, scope="class", ids=lambda c: c.titled()
)
class TestEveryForecaster(ForecasterContract):
    @pytest.fixture
    def config(self, request):
        return request.param


@pytest.mark.parametrize(
    ("name", "settings", "most"),
    [
        ("polynomial_map", {"degree": 1}, 0.3),
        ("dmd", {"delays": True}, 0.4),
        ("pod_ridge", {}, 0.3),
        ("pod_ridge", {"base": "damped_anomaly"}, 0.3),
        ("identified_ode", {}, 0.4),
        ("polynomial_map", {"degree": 2}, 0.4),
        ("reservoir", SETTINGS["reservoir"], 0.6),
        ("sensors", SETTINGS["sensors"], 0.35),
    ],
)
def test_travelling_waves_are_forecast(name, settings, most):
    """Noise of 0.1 on waves of 0.8: models of the modes' rotation come near the noise."""
    contract = ForecasterContract()
    tuned = stored_config({"name": name, **settings}).candidates(wave_setting())[-1]
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


@pytest.mark.parametrize("config", list(configurations()), ids=lambda c: c.titled())
def test_every_forecaster_has_a_label_before_its_settings_are_chosen(config):
    assert config.label().startswith((config.titled(), "climatology"))
    corrected = forecasters.get("lstm")(base=config)
    assert corrected.label() == f"{config.label()} + POD-LSTM"


def test_lags_beyond_the_input_steps_are_refused_by_name():
    config = forecasters.get("polynomial_map")(degree=1, lags=99)
    setting = wave_setting()
    assert config.refuses(setting) == f"99 lags exceed the {setting.inputs} input steps"

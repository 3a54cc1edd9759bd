from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.forecasting.forecasters import Setting, forecasters
from scitoolkit.forecasting.forecasters.base import stored_config
from scitoolkit.forecasting.windows import TimeSeries, all_windows
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


def monthly(values):
    return TimeSeries(np.asarray(values)[:, None], 1950 + np.arange(len(values)) / 12)


def test_a_changed_season_is_followed():
    """Its shape wanders: the climatology of the record is no longer that of the last seasons."""
    rng = np.random.default_rng(3)
    shape, values = 3 * np.sin(2 * np.pi * np.arange(12) / 12), np.empty(900)
    for step in range(900):
        shape[step % 12] += 0.4 * rng.standard_normal()
        values[step] = shape[step % 12] + 0.5 * rng.standard_normal()
    setting = Setting(24, 6, np.ones(1), rank=1, harmonics=2, season=12)
    windows = all_windows(TimeSeries(*(part[600:] for part in monthly(values))), 24, 6)

    def error(increments):
        config = forecasters.get("pod_ridge")(increments=increments)
        model = config.build(setting).fit([monthly(values[:600])])
        return float(((windows.targets() - model.predict(windows)) ** 2).mean())

    assert error("season") < 0.6 * error(False)


@pytest.mark.parametrize("season", [0, 12])
def test_seasonal_increments_need_a_season_in_the_inputs(season):
    config = forecasters.get("pod_ridge")(increments="season")
    setting = Setting(6, 2, np.ones(1), rank=1, harmonics=2, season=season)
    assert config.refuses(setting) == "the 6 input steps hold no season of whole steps"


@pytest.mark.parametrize("seed", range(3))
def test_a_trend_that_ends_is_left(seed):
    """Anomalies are those of an extrapolated trend, which persist more than those of its fit."""
    rng = np.random.default_rng(seed)
    values = 12 * np.minimum(np.arange(900), 600) / 900
    swing = 0.0
    for step in range(900):
        swing = 0.7 * swing + rng.standard_normal()
        values[step] += swing
    setting = Setting(24, 6, np.ones(1), rank=1, harmonics=2, season=12)
    tuned = forecasters.get("damped_anomaly").tuned(trend=True).candidates(setting)[-1]
    windows = all_windows(TimeSeries(*(part[600:] for part in monthly(values))), 24, 6)

    def error(config):
        model = config.build(setting).fit([monthly(values[:600])])
        return float(((windows.targets() - model.predict(windows)) ** 2).mean())

    assert error(tuned) < 0.8 * min(error(tuned.model_copy(update={"folds": n})) for n in (1, 3))

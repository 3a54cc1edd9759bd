"""Contract suite of forecasters, to inherit in tests.

Example:
    class TestMyForecaster(ForecasterContract):
        @pytest.fixture
        def config(self):
            return MyForecasterConfig()
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scitoolkit.core.errors import DataError
from scitoolkit.forecasting.forecasters import ForecasterConfig, Setting, forecasters
from scitoolkit.forecasting.windows import Array, TimeSeries, all_windows
from scitoolkit.testing.device import device_part, require_gpu
from scitoolkit.testing.member import check_registered, check_settings

INPUTS, LEADS, CELLS = 6, 4, 12


def wave_series(steps: int = 240, seed: int = 0) -> TimeSeries:
    """Return a seasonal cycle and two travelling waves under noise, monthly, on 12 cells."""
    rng = np.random.default_rng(seed)
    t, x = np.arange(steps)[:, None], np.arange(CELLS) * 2 * np.pi / CELLS
    waves = np.sin(x - 0.9 * t) + 0.5 * np.sin(2 * x + 0.53 * t)
    season = 2 * np.cos(2 * np.pi * t / 12) * (1 + 0.1 * np.cos(x))
    noise = 0.1 * rng.standard_normal((steps, CELLS))
    return TimeSeries(waves + season + noise, 2000 + np.arange(steps) / 12)


def wave_setting() -> Setting:
    """Return the setting of `wave_series`."""
    # Six steps are the second harmonic of the season, and the longest that the inputs hold.
    return Setting(INPUTS, LEADS, np.ones(CELLS), 4, 2, (CELLS,), rows=200, season=6)


class ForecasterContract:
    """Contract suite of forecasters; override the fixture `config`."""

    @pytest.fixture
    def config(self) -> ForecasterConfig:
        """Return the configuration of the forecaster under test."""
        raise NotImplementedError("override the fixture `config`")

    def parts(self, config: ForecasterConfig) -> tuple[Setting, list[TimeSeries], TimeSeries]:
        """Return the setting, two training segments, and the series after them."""
        series, setting = wave_series(), wave_setting()
        assert not config.refuses(setting)
        train = [TimeSeries(*(a[s] for a in series)) for s in (slice(0, 110), slice(113, 200))]
        return setting, train, TimeSeries(series.values[200:], series.years[200:])

    def fitted_and_forecast(self, config: ForecasterConfig) -> tuple[Array, Array]:
        """Return truth and forecast on the series after the training segments."""
        setting, train, rest = self.parts(config)
        windows = all_windows(rest, INPUTS, LEADS)
        return windows.targets(), config.build(setting).fit(train).predict(windows)

    def test_registered_under_its_name(self, config: ForecasterConfig) -> None:
        """The registry returns this class, which has a summary and title and is available."""
        check_registered(forecasters, config)
        assert config.titled()
        assert config.titled() in config.candidates(wave_setting())[0].label()

    def test_settings_of_all_candidates(self, config: ForecasterConfig) -> None:
        """Unknown keys are refused; a candidate is unchanged after it is written and read."""
        for candidate in config.candidates(wave_setting()):
            check_settings(candidate)

    def test_forecasts_are_finite_and_in_the_unit_of_the_field(
        self, config: ForecasterConfig
    ) -> None:
        """The forecast has the shape of the truth and is equivariant to its offset and scale."""
        setting, train, rest = self.parts(config)
        windows = all_windows(rest, INPUTS, LEADS)
        forecast = config.build(setting).fit(train).predict(windows)
        assert forecast.shape == windows.targets().shape
        assert np.isfinite(forecast).all()
        moved = [TimeSeries(3 * s.values + 50, s.years) for s in train]
        again = config.build(setting).fit(moved).predict(windows.with_values(3 * rest.values + 50))
        np.testing.assert_allclose(again, 3 * forecast + 50, rtol=0.01, atol=0.3)

    @device_part
    def test_a_gpu_gives_a_forecast_of_equal_quality(self, config: ForecasterConfig) -> None:
        """Networks are trained there; the forecast is an array of the host."""
        require_gpu()
        truth, forecast = self.fitted_and_forecast(config)
        assert forecast.shape == truth.shape
        assert np.isfinite(forecast).all()

    def test_it_learns_from_the_segments_alone(self, config: ForecasterConfig) -> None:
        """Repeated fits give the same forecast; values after the inputs have no influence."""
        setting, train, rest = self.parts(config)
        changed = rest.values.copy()
        changed[20 + INPUTS :] = 1e3
        one, other = (
            config.build(setting)
            .fit(train)
            .predict(all_windows(TimeSeries(v, rest.years), INPUTS, LEADS).take(slice(20, 21)))
            for v in (rest.values, changed)
        )
        np.testing.assert_array_equal(one, other)

    def test_what_lies_before_the_inputs_changes_nothing(self, config: ForecasterConfig) -> None:
        """A forecast depends on its input steps only."""
        setting, train, rest = self.parts(config)
        model = config.build(setting).fit(train)
        whole = model.predict(all_windows(rest, INPUTS, LEADS).take(slice(20, 21)))
        cut = TimeSeries(rest.values[20:], rest.years[20:])
        short = model.predict(all_windows(cut, INPUTS, LEADS).take(slice(0, 1)))
        np.testing.assert_allclose(whole, short, rtol=1e-10, atol=1e-10)

    def test_steps_are_the_forecast(self, config: ForecasterConfig) -> None:
        """`start` and `step` return the leads of `predict` one by one."""
        setting, train, rest = self.parts(config)
        model, windows = config.build(setting).fit(train), all_windows(rest, INPUTS, LEADS)
        forecast, state = model.predict(windows), model.start(windows)
        for lead in range(LEADS):
            state, values = model.step(state)
            np.testing.assert_allclose(values, forecast[:, lead], rtol=1e-10, atol=1e-10)

    def test_arrays_restore_the_model(self, config: ForecasterConfig) -> None:
        """A model restored from its arrays gives the same forecast, bit for bit."""
        setting, train, rest = self.parts(config)
        model, windows = config.build(setting).fit(train), all_windows(rest, INPUTS, LEADS)
        arrays = {k: np.array(v) for k, v in model.arrays().items()}
        assert model.cost() == sum(v.size for v in arrays.values())
        again = config.build(setting).restore(arrays)
        np.testing.assert_array_equal(again.predict(windows), model.predict(windows))

    def test_a_memo_changes_nothing(self, config: ForecasterConfig) -> None:
        """Fits with a shared memo give the same forecasts as separate fits."""
        setting, train, rest = self.parts(config)
        windows = all_windows(rest, INPUTS, LEADS)
        memo: dict[Any, Any] = {}
        for candidate in config.candidates(setting)[:2]:
            shared = candidate.build(setting).fit(train, memo).predict(windows)
            alone = candidate.build(setting).fit(train).predict(windows)
            np.testing.assert_allclose(shared, alone, rtol=1e-9, atol=1e-9)

    def test_too_short_a_record_is_refused_by_name(self, config: ForecasterConfig) -> None:
        """A record without a complete window raises `DataError`, or is sufficient."""
        setting, train, rest = self.parts(config)
        short = [TimeSeries(train[0].values[:3], train[0].years[:3])]
        try:
            model = config.build(replace(setting, rows=3)).fit(short)
        except DataError:
            return
        assert np.isfinite(model.predict(all_windows(rest, INPUTS, LEADS))).all()

from __future__ import annotations

import cftime
import numpy as np
import pytest

from scitoolkit import forecasting as baselines
from scitoolkit.forecasting.windows import TimeSeries, all_windows, blocked_folds
from scitoolkit.io.time_axis import decimal_years


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "standard", "julian"])
def test_the_season_is_read_from_the_calendar(calendar):
    times = np.array(
        [cftime.datetime(2000 + i // 12, 1 + i % 12, 1, calendar=calendar) for i in range(120)]
    )
    years = decimal_years(times)
    assert years[0] == 2000
    assert years[12] == 2001
    values = np.stack([np.cos(2 * np.pi * years), np.sin(4 * np.pi * years)], axis=1)
    model = baselines.Climatology(3).fit([TimeSeries(values[:60], years[:60])])
    np.testing.assert_allclose(model.at(years[60:]), values[60:], atol=1e-8)


def test_a_breakpoint_of_three_days_does_not_shift_the_season():
    week = np.timedelta64(7, "D")
    first = decimal_years(np.datetime64("1981-11-01") + week * np.arange(427))
    second = decimal_years(np.datetime64("1990-01-03") + week * np.arange(100))
    wave = lambda y: np.cos(2 * np.pi * y)[:, None]  # noqa: E731
    model = baselines.Climatology(1).fit([TimeSeries(wave(first), first)])
    np.testing.assert_allclose(model.at(second), wave(second), atol=1e-8)


def test_without_dates_there_is_no_season():
    years = decimal_years(np.arange(50))
    model = baselines.Climatology(3).fit([TimeSeries(np.arange(50.0)[:, None], years)])
    assert model.used_ == 0
    np.testing.assert_allclose(model.at(years[:2]), 24.5)


@pytest.fixture
def series():
    rng = np.random.default_rng(1)
    years = 2000 + np.arange(400) / 12
    noise = np.zeros((400, 2))
    for i in range(1, 400):
        noise[i] = [0.9, 0.5] * noise[i - 1] + rng.normal(size=2)
    return TimeSeries(noise + 5 * np.cos(2 * np.pi * years)[:, None], years)


def test_damping_is_the_autocorrelation(series):
    model = baselines.DampedAnomaly(2, leads=3).fit([series])
    factors = model.common_[:, 0, None] + model.loadings_[:, 0] @ model.patterns_
    expected = np.array([0.9, 0.5]) ** np.arange(1, 4)[:, None]
    np.testing.assert_allclose(factors, expected, atol=0.12)


def test_infinite_penalty_leaves_the_damped_anomaly(series):
    windows = all_windows(series, 8, 4)
    damped = baselines.DampedAnomaly(2, 4, shrinkage=0.0).fit([series]).predict(windows)
    ridge = baselines.AnomalyAutoregression(2, 4, alpha=1e12).fit([series]).predict(windows)
    assert np.abs(damped - ridge).max() < 0.2


def test_what_comes_after_the_inputs_changes_no_forecast(series):
    changed = TimeSeries(series.values.copy(), series.years)
    changed.values[308:] = 1e6
    train = [TimeSeries(series.values[:300], series.years[:300])]
    for model in (
        baselines.Persistence(),
        baselines.AnomalyPersistence(2),
        baselines.DampedAnomaly(2, 4, memory=(3, 8)),
        baselines.AnomalyAutoregression(2, 4),
        baselines.RidgeAutoregression(8, 4),
    ):
        model.fit(train)
        one = model.predict(all_windows(series, 8, 4).take(np.array([300])))
        other = model.predict(all_windows(changed, 8, 4).take(np.array([300])))
        np.testing.assert_array_equal(one, other)


def test_folds_share_no_step_and_keep_the_gap(series):
    step = TimeSeries(np.arange(100.0)[:, None], np.arange(100.0))
    for train, block in blocked_folds([step], 4, 5, 10):
        seen = np.concatenate([s.values[:, 0] for s in train])
        assert np.abs(seen[:, None] - block.values[:, 0]).min() > 5

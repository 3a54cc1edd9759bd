"""Backtest with refits, and models of statsforecast as baselines, absent and installed."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from scitoolkit import api
from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.forecasting.backtest import past_of, refitted, spread_origins
from scitoolkit.forecasting.config import STATSFORECAST_MODELS, BacktestConfig, ForecastingConfig
from scitoolkit.forecasting.forecasters.climatology import Climatology
from scitoolkit.forecasting.forecasters.persistence import Persistence
from scitoolkit.forecasting.job import ForecastingJob
from scitoolkit.forecasting.statsforecast_models import (
    StatsforecastModel,
    fitted_models,
    main_season,
    statsforecast_models,
)
from scitoolkit.forecasting.windows import TimeSeries, Windows, all_windows

COUNT = 300
needs_package = pytest.mark.skipif(
    find_spec("statsforecast") is None, reason="statsforecast is not installed (peer `series`)"
)


def job_on(folder, values, **more):
    path = folder / "series.csv"
    months = pd.date_range("1990-01-01", periods=len(values), freq="MS")
    pd.DataFrame({"time": months, "flow [m3/s]": values}).to_csv(path, index=False)
    config = ForecastingConfig(
        **{
            "data": {"path": path, "variable": "flow"},
            "inputs": 4,
            "leads": 3,
            "forecaster": "climatology",
            "model": {"name": "none"},
            **more,
        }
    )
    run, job = RunDirectory.create(folder / "runs", "series", config), ForecastingJob()
    job.train(config, run)
    return SimpleNamespace(run=run, results=job.evaluate(run.path))


def record(values, breakpoints=()):
    """Return a coded record of one series, without dates."""
    series = TimeSeries(np.asarray(values, np.float64)[:, None], np.full(len(values), np.nan))

    def segments(steps):
        cut = slice(steps.start, steps.stop)
        return [TimeSeries(series.values[cut], series.years[cut])]

    return SimpleNamespace(
        series=series, segments=segments, breakpoints=breakpoints, weights=np.ones(1)
    )


def table(results, title):
    (wanted,) = (t for t in results.tables if t.title.startswith(title))
    return {row[0]: row[1:] for row in wanted.rows}


def test_each_origin_has_its_own_fit_to_its_past_only():
    data = record(np.arange(40.0))
    windows = all_windows(data.series, inputs=4, leads=2)
    few = windows.take(np.array([10, 30]))
    once = Climatology(0).fit(data.segments(range(5, 14)))
    forecasts = refitted({"mean": once, "last": Persistence()}, past_of(data, 5), few)
    # The mean of steps 5 to the last input.
    np.testing.assert_allclose(forecasts["mean"][:, 0, 0], [np.arange(5, 14).mean(), 19.0])
    np.testing.assert_allclose(forecasts["last"][:, 1, 0], [13.0, 33.0])
    np.testing.assert_allclose(once.predict(few)[:, 0, 0], 9.0)


def test_origins_are_spread_over_the_test_part():
    windows = Windows(TimeSeries(np.zeros((99, 1)), np.zeros(99)), np.arange(50, 91), 4, 4)
    chosen = spread_origins(windows, BacktestConfig(origins=5))
    assert chosen.starts.tolist() == [50, 60, 70, 80, 90]


def test_a_level_that_moves_is_followed_by_refits_only(tmp_path):
    """From step 200 on the level is higher by 10, which the mean of the steps before misses."""
    rng = np.random.default_rng(0)
    values = 5.0 + 0.1 * rng.standard_normal(COUNT)
    values[200:] += 10.0
    split = {"train": 120, "validation": 60, "test": 120}
    done = job_on(tmp_path, values, split=split, backtest={"origins": 6})
    rows = table(done.results, "Backtest: RMSE at 6 origins")
    refit, single = rows["surrogate"], rows["surrogate, one fit"]
    assert len(refit) == 4
    origins = np.round(np.linspace(176, COUNT - 7, 6)) + 4  # their inputs may be before it
    missed = np.where(origins < 200, 0.0, 10.0)
    assert single[-1] == pytest.approx(np.sqrt(np.mean(missed**2)), rel=0.03)
    # A share of 200 / origin of the steps before an origin has the former level.
    assert refit[-1] == pytest.approx(np.sqrt(np.mean((missed * 200 / origins) ** 2)), rel=0.03)
    assert done.results.metrics["rmse_backtest"] == refit[-1]
    assert {"persistence", "climatology"} & set(rows)
    one_fit = job_on(tmp_path, values, split=split, backtest={"origins": 6, "refit": False}).results
    assert table(one_fit, "Backtest")["surrogate"] == pytest.approx(single)


@pytest.mark.parametrize("begin", [0, 200, COUNT])
def test_another_file_has_a_backtest_whose_past_is_the_training_and_its_own_steps(tmp_path, begin):
    """The level rises by 10 after the training: the file may repeat none or all of the training."""
    values = 5.0 + 0.1 * np.random.default_rng(0).standard_normal(COUNT + 60)
    values[COUNT:] += 10.0
    settings = {"split": {"train": 160, "validation": 60, "test": 80}, "backtest": {"origins": 50}}
    run = job_on(tmp_path, values[:COUNT], **settings).run
    months = pd.date_range("1990-01-01", periods=len(values), freq="MS")
    later = tmp_path / "later.csv"
    columns = {"time": months[begin:], "flow [m3/s]": values[begin:]}
    pd.DataFrame(columns).to_csv(later, index=False)
    results = ForecastingJob().evaluate(run.path, data=later)
    # Targets begin after the fitted steps (220), or 4 steps after the first one of the file.
    first = max(220, begin + 4)
    places = np.unique(np.round(np.linspace(first, len(values) - 3, 50)).astype(int))
    rows = table(results, f"Backtest: RMSE at {len(places)} origins")
    known = np.minimum(places, places - max(0, begin - 220))
    risen = np.maximum(places - max(COUNT, begin), 0) / known
    truth = np.stack([values[places + lead] for lead in range(3)], axis=1) > 10
    wrong = np.where(truth, 10.0 * (1 - risen)[:, None], 10.0 * risen[:, None])
    assert rows["surrogate"][-1] == pytest.approx(np.sqrt((wrong**2).mean()), rel=0.03)
    assert rows["surrogate"][-1] < rows["surrogate, one fit"][-1]


def test_without_the_training_file_the_report_says_why_there_is_no_backtest(tmp_path):
    values = np.random.default_rng(0).standard_normal(COUNT)
    run = job_on(tmp_path, values, backtest={"origins": 6}).run
    other = (tmp_path / "series.csv").rename(tmp_path / "moved.csv")
    summary = ForecastingJob().evaluate(run.path, data=other).summary
    (line,) = (s for s in summary if s.startswith("There is no backtest"))
    assert "series.csv was not found" in line


@pytest.mark.parametrize("origins", [1, 10_000])
def test_origins_beyond_the_test_part_are_refused(tmp_path, origins):
    with pytest.raises((ConfigError, ValueError), match=r"origins"):
        job_on(
            tmp_path, np.random.default_rng(0).standard_normal(99), backtest={"origins": origins}
        )


def test_several_simulations_have_no_backtest(tmp_path):
    from scitoolkit.forecasting.backtest import check_backtest

    config = ForecastingConfig(
        data={"path": tmp_path, "variable": "u"}, backtest={"origins": 3}, model={"name": "none"}
    )
    data = SimpleNamespace(simulations=(range(5), range(5, 10)))
    with pytest.raises(ConfigError, match="backtest of 2 simulations"):
        check_backtest(config, data, SimpleNamespace())


def test_the_report_says_how_to_install_what_it_does_not_compare(tmp_path, monkeypatch):
    monkeypatch.setattr(StatsforecastModel, "requires", ("no_such_package",))
    values = np.random.default_rng(0).standard_normal(COUNT)
    (line,) = (s for s in job_on(tmp_path, values).results.summary if "statsforecast" in s)
    assert line.startswith("AutoARIMA, AutoETS, AutoTheta, SeasonalNaive of statsforecast are not")
    assert "pip install 'scitoolkit[statsforecast]'" in line
    none = job_on(tmp_path, values, baselines=[]).results.summary
    assert not any("statsforecast" in s for s in none)


def test_listed_models_need_their_package(tmp_path, monkeypatch):
    monkeypatch.setattr(StatsforecastModel, "requires", ("no_such_package",))
    config = ForecastingConfig(data={"path": tmp_path, "variable": "u"}, baselines=["AutoETS"])
    # `validate` and `run` check these before anything else.
    assert config.required_packages() == ("statsforecast",)
    assert not ForecastingConfig(data={"path": tmp_path, "variable": "u"}).required_packages()
    with pytest.raises(BackendError, match=r"scitoolkit\[statsforecast\]"):
        statsforecast_models(config, (), record(np.zeros(9)))


def test_fields_and_records_with_gaps_are_not_compared(tmp_path):
    config = ForecastingConfig(data={"path": tmp_path, "variable": "u"})
    whole, gaps = record(np.zeros(9)), record(np.zeros(9), breakpoints=(4,))
    models, why = statsforecast_models(config, (), whole, gaps)
    assert not models
    assert "data.fill" in why
    whole.weights = np.ones(5)
    assert statsforecast_models(config, (), whole) == ({}, "")


def test_the_season_of_models_that_have_one():
    months = 2000 + np.arange(60) / 12
    assert main_season((), months) == 12
    assert main_season((8766.0, 24.0, 168.0), months) == 24
    assert main_season((), np.full(60, np.nan)) == 1
    assert StatsforecastModel("AutoETS", 73).season == 1
    assert StatsforecastModel("SeasonalNaive", 73).season == 73


class Mean(StatsforecastModel):
    """A model with the interface of the package: the mean of the last `season` values."""

    def _model(self):
        return self

    def fit(self, segments, memo=None):
        self._fitted = [self] * segments[0].values.shape[1]
        return self

    def forward(self, y, h):
        if len(y) < self.season and self.name == "refusing":
            raise NotImplementedError("tiny datasets")
        mean = y[-self.season :].mean() if len(y) >= self.season else np.nan
        return {"mean": np.full(h, mean)}


def test_models_for_which_the_first_origin_is_too_early_are_named(tmp_path):
    data = record(np.arange(40.0))
    models = {n: Mean(n, k) for n, k in (("short", 4), ("refusing", 9), ("long", 9))}
    windows = all_windows(data.series, inputs=6, leads=2)
    usable, why = fitted_models(models, data.segments(range(30)), windows)
    assert [*usable] == ["short"]
    assert why == (
        "6 steps before the first origin are too few for refusing (tiny datasets), "
        "long (its first forecast is not finite)"
    )
    later = fitted_models(models, data.segments(range(30)), windows.take(slice(3, None)))
    assert (set(later[0]), later[1]) == ({"short", "refusing", "long"}, "")


@needs_package
def test_a_short_file_is_evaluated_without_the_models_that_need_more(tmp_path):
    rng = np.random.default_rng(3)
    values = 10 + 3 * np.sin(2 * np.pi * np.arange(160) / 12) + 0.3 * rng.standard_normal(160)
    run = job_on(tmp_path, values).run
    later = tmp_path / "later.csv"
    months = pd.date_range("2010-01-01", periods=9, freq="MS")
    pd.DataFrame({"time": months, "flow [m3/s]": values[:9]}).to_csv(later, index=False)
    results = api.evaluate(run.path, later)
    rows = table(results, "RMSE on")
    assert "SeasonalNaive (statsforecast)" not in rows
    assert np.isfinite([row[-1] for row in rows.values()]).all()
    assert any("4 steps before the first origin are too few for" in s for s in results.summary)


@needs_package
@pytest.mark.parametrize("name", STATSFORECAST_MODELS)
def test_forecasts_are_those_of_the_package(name):
    """From each origin with one fit: `cross_validation(refit=False)` of the package."""
    import statsforecast
    from statsforecast import models

    rng = np.random.default_rng(1)
    values = 10 + 3 * np.sin(2 * np.pi * np.arange(90) / 6) + rng.standard_normal(90)
    data = record(values)
    model = StatsforecastModel(name, 6).fit(data.segments(range(80)))
    windows = Windows(data.series, np.arange(76, 84), 4, 3)
    frame = pd.DataFrame({"unique_id": "a", "ds": np.arange(90), "y": values})
    more = {"approximation": True} if name == "AutoARIMA" else {}
    model_of_package = getattr(models, name)(season_length=6, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its optimizer
        theirs = statsforecast.StatsForecast([model_of_package], freq=1).cross_validation(
            3, frame, step_size=1, test_size=10, refit=False
        )
    expected = theirs[name].to_numpy().reshape(8, 3)
    np.testing.assert_allclose(model.predict(windows)[..., 0], expected, rtol=1e-6)


@needs_package
def test_reports_of_two_series_compare_with_the_package(tmp_path):
    rng = np.random.default_rng(2)
    months = np.arange(COUNT)
    values = 10 + 3 * np.sin(2 * np.pi * months / 12) + 0.3 * rng.standard_normal(COUNT)
    done = job_on(tmp_path, values, baselines=["AutoETS", "SeasonalNaive"], backtest={"origins": 3})
    for title in ("RMSE on the test split", "Backtest"):
        rows = table(done.results, title)
        assert rows["AutoETS (statsforecast)"][-1] < rows["persistence"][-1]
        assert rows["SeasonalNaive (statsforecast)"][-1] < rows["persistence"][-1]

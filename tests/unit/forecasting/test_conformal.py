from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from scitoolkit.forecasting.forecasters.damped_anomaly import DampedAnomaly
from scitoolkit.forecasting.metrics import coverage
from scitoolkit.forecasting.windows import Series, all_windows
from scitoolkit.io.time_axis import decimal_years

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from _rolling_intervals import rolling_intervals

DATA = next((Path(__file__).parents[3] / "datasets" / "ersst_v5").glob("*.nc"))


@pytest.fixture(scope="module")
def errors():
    with xr.open_dataset(DATA, engine="h5netcdf") as dataset:
        field = dataset.sst.isel(lat=slice(None, None, 8), lon=slice(None, None, 8)).load()
    values = field.values.reshape(field.sizes["time"], -1).astype(float)
    values = values[:, np.isfinite(values).all(axis=0)]
    series = Series(values, decimal_years(field.time.values))
    train = Series(series.values[:60], series.years[:60])
    windows = all_windows(series, 2, 2).take(slice(60, None))
    return windows.targets() - DampedAnomaly(3, 2).fit([train]).predict(windows)


def intervals(errors, past=30):
    steps = np.arange(len(errors) - past)
    return rolling_intervals(
        errors[past:], steps[:, None] + 1 + np.arange(2), steps, errors[:past], rate=0.03
    )


def test_coverage_of_real_residuals(errors):
    low, high = intervals(errors)
    assert 0.83 < coverage(errors[30:], low, high, axis=(0, 1, 2)) < 0.97


def test_an_interval_knows_only_errors_that_are_verified(errors):
    low, _ = intervals(errors)
    changed = errors.copy()
    changed[30 + 15 :] = 1e6
    after, _ = intervals(changed)
    np.testing.assert_array_equal(low[:16], after[:16])
    assert not np.array_equal(low, after)


def test_tails_are_those_of_conformal_sets():
    """Of n errors the ends are the k-th from below and above, k = (n + 1)(1 - level)/2."""
    past = np.arange(39.0)[::-1, None, None]
    unknown = np.full((1, 1, 1), np.nan)
    low, high = rolling_intervals(unknown, np.array([[9]]), np.array([0]), past, level=0.9)
    assert (low.item(), high.item()) == pytest.approx((1.0, 37.0))
    low, high = rolling_intervals(unknown, np.array([[9]]), np.array([0]), past, level=0.85)
    assert (low.item(), high.item()) == pytest.approx((2.0, 36.0))

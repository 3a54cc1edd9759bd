from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from scitoolkit.forecasting.conformal import width_factors
from scitoolkit.forecasting.forecasters.damped_anomaly import DampedAnomaly
from scitoolkit.forecasting.intervals import error_model, independent_errors
from scitoolkit.forecasting.metrics import coverage
from scitoolkit.forecasting.windows import TimeSeries, all_windows
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
    series = TimeSeries(values, decimal_years(field.time.values))
    train = TimeSeries(series.values[:60], series.years[:60])
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


def covered(scale, **more):
    """Return the coverage (cell,) of unit intervals adapted to errors (window, cell) of a scale."""
    error = scale * np.random.default_rng(3).standard_normal((1500, 1, np.shape(scale)[-1]))
    bound = np.full((1, error.shape[2]), 1.645)
    weights = np.ones(error.shape[2])
    factors = width_factors(error, -bound, bound, weights, np.arange(1500), **more)
    assert factors.shape == error.shape
    return (np.abs(error) <= factors * bound).mean(axis=(0, 1))


@pytest.mark.parametrize("cells", [1, 2, 7, 300])
@pytest.mark.parametrize("scale", [0.6, 1.0, 1.4, 2.0])
def test_intervals_of_a_wrong_width_come_to_cover_what_they_state(cells, scale):
    found = covered(np.full((1, cells), scale))
    assert found.mean() == pytest.approx(0.9, abs=0.012)
    np.testing.assert_allclose(found, 0.9, atol=0.025)


@pytest.mark.parametrize("change", [0.7, 1.3, 1.7])
def test_cells_whose_errors_drift_apart_each_come_to_be_covered(change):
    scale = np.where(np.arange(40) < 8, change, 1.0)[None]
    together = covered(scale, own_rate=0.0)
    assert abs(together[:8].mean() - 0.9) > 0.06, "one factor of all leaves them apart"
    found = covered(scale)
    assert found[:8].mean() == pytest.approx(0.9, abs=0.025)
    assert found[8:].mean() == pytest.approx(0.9, abs=0.012)


@pytest.mark.parametrize("cells", [1, 5])
def test_factors_know_only_verified_errors_and_pass_over_unknown_ones(cells):
    error = np.random.default_rng(4).standard_normal((60, 3, cells)) * 2
    bound, weights = np.ones((3, cells)), np.ones(cells)
    before = width_factors(error, -bound, bound, weights, np.arange(60))
    changed = error.copy()
    changed[30:] = 1e6
    after = width_factors(changed, -bound, bound, weights, np.arange(60))
    for lead in range(3):  # window 30 is verified `lead` + 1 steps after its issue
        np.testing.assert_array_equal(before[: 31 + lead, lead], after[: 31 + lead, lead])
        assert (after[31 + lead, lead] != before[31 + lead, lead]).any()
    unknown = error.copy()
    unknown[10:20] = np.nan
    assert np.isfinite(width_factors(unknown, -bound, bound, weights, np.arange(60))).all()


def test_intervals_of_few_independent_errors_cover_what_they_should():
    """Mean over many records of 40 independent errors, each of which two windows have."""
    rng, covered, plain = np.random.default_rng(0), [], []
    for _ in range(300):
        errors = np.repeat(rng.standard_normal((40, 1, 1)), 2, axis=0)
        spread, quantiles = error_model(errors)
        later = rng.standard_normal(500)
        low, high = quantiles[0, [1, -2]] * spread
        covered.append(((later >= low) & (later <= high)).mean())
        low, high = np.quantile(errors, (0.05, 0.95))
        plain.append(((later >= low) & (later <= high)).mean())
    assert np.mean(plain) < 0.87
    assert 0.89 < np.mean(covered) < 0.91


def test_the_number_of_independent_errors_knows_cells_and_windows_that_are_alike():
    rng = np.random.default_rng(1)
    free = rng.standard_normal((1200, 3, 4))
    alike = np.repeat(free[:, :, :1], 4, axis=2)
    lasting = np.repeat(free[:200], 6, axis=0)
    numbers = [independent_errors(errors) for errors in (free, alike, lasting)]
    for number, expected in zip(numbers, (4800, 1200, 800), strict=True):
        assert 0.6 * expected < number < 1.6 * expected


@pytest.mark.parametrize(("scatter", "independent", "alike"), [(0.5, 16, 2), (0.3, 12, 3)])
def test_cells_of_small_and_of_large_spread_are_covered_alike(scatter, independent, alike):
    """Mean over short records; the smallest RMS errors are also small by chance."""
    lowest, highest = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        spreads = np.exp(scatter * rng.standard_normal(30))
        errors = spreads * np.repeat(rng.standard_normal((independent, 2, 30)), alike, axis=0)
        spread, quantiles = error_model(errors)
        later = spreads * rng.standard_normal((400, 2, 30))
        low, high = (quantiles[:, level, None] * spread for level in (1, -2))
        inside = ((later >= low) & (later <= high)).mean(axis=(0, 1))[np.argsort(spread)]
        lowest.append(inside[:10].mean())
        highest.append(inside[-10:].mean())
    assert abs(np.mean(lowest) - 0.9) < 0.008
    assert abs(np.mean(highest) - 0.9) < 0.008


@pytest.mark.parametrize("change", [0.0, 0.35])
def test_intervals_hold_how_much_the_spread_of_cells_changes(change):
    """Mean over records of four periods, in each of which cells have another spread."""
    covered = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        base = 10.0 ** rng.uniform(-1, 1, 6)
        spreads = base * np.exp(change * rng.standard_normal((5, 1, 1, 6)))
        periods = spreads * rng.standard_normal((5, 100, 2, 6))
        spread, quantiles = error_model(np.concatenate(periods[:4]))
        low, high = (quantiles[:, level, None] * spread for level in (1, -2))
        covered.append(((periods[4] >= low) & (periods[4] <= high)).mean())
    assert 0.895 < np.mean(covered) < 0.915

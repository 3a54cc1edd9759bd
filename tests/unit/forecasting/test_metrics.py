from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import r2_score

from scitoolkit.forecasting import metrics, scores


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(40, 3, 5)) * [1, 2, 3, 4, 5]
    return truth, truth + rng.normal(size=truth.shape)


@pytest.mark.parametrize(
    ("ours", "average"),
    [
        (metrics.r2_uniform, "uniform_average"),
        (metrics.r2_variance_weighted, "variance_weighted"),
    ],
)
def test_r2_is_that_of_scikit_learn(pair, ours, average):
    truth, forecast = pair
    peer = r2_score(truth.reshape(40, -1), forecast.reshape(40, -1), multioutput=average)
    assert ours(truth, forecast) == pytest.approx(peer)


def test_rmse_weighs_channels_by_area(pair):
    truth, forecast = pair
    weights = np.array([1.0, 0, 0, 0, 3.0])
    error = (truth - forecast) ** 2
    expected = np.sqrt((error[..., 0] + 3 * error[..., 4]).mean(axis=0) / 4)
    np.testing.assert_allclose(metrics.rmse_per_lead(truth, forecast, weights), expected)


def test_acc_is_one_for_any_positive_multiple_of_the_anomaly(pair):
    truth, climatology = pair
    forecast = climatology + 0.3 * (truth - climatology)
    np.testing.assert_allclose(metrics.anomaly_correlation(truth, forecast, climatology), 1.0)


def test_crps_is_the_double_sum():
    members, truth = np.array([0.0, 1.0, 4.0]), 2.0
    pairs = np.abs(members[:, None] - members).sum() / (2 * 3 * 2)
    expected = np.abs(members - truth).mean() - pairs
    assert metrics.crps_ensemble(np.array(truth), members) == pytest.approx(expected)


def test_coverage_leaves_out_unknown_bounds():
    low, high = np.array([0.0, 0.0, np.nan]), np.array([1.0, 1.0, 1.0])
    assert metrics.coverage(np.array([0.5, 2.0, 0.5]), low, high) == 0.5


def test_scores_tell_a_smooth_forecast_from_a_sharp_one():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(40, 4, 64)).cumsum(axis=2)
    truth = truth - truth.mean(axis=2, keepdims=True)
    sharp = truth + 0.2 * rng.normal(size=truth.shape)
    kernel = np.exp(-(np.minimum(np.arange(64), 64 - np.arange(64)) ** 2) / 18)
    smooth = np.fft.irfft(np.fft.rfft(truth) * np.fft.rfft(kernel / kernel.sum()).real, 64)
    assert scores.extremes(truth, sharp) > scores.extremes(truth, smooth) > 0.3
    found = [scores.spectral_error(truth, f, (64,)) for f in (sharp, smooth)]
    assert found[0] < 0.6
    assert found[1] > 2
    assert scores.spectral_error(truth, sharp, (100,)) is None


def test_the_interval_of_a_skill_widens_with_the_dependence_of_windows():
    rng = np.random.default_rng(1)
    ours = np.repeat(rng.gamma(1.0, size=20), 10)
    reference = np.full(200, 4.0)
    alone, together = (scores.skill(ours, reference, block) for block in (1, 20))
    assert alone[1] < alone[0] < alone[2]
    assert together[2] - together[1] > 2 * (alone[2] - alone[1])

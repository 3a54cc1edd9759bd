"""Estimators of scikit-learn: its own checks, and the values of our POD and forecaster."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.forecasting.estimators import PODTransformer, PolynomialForecaster, lagged_table
from scitoolkit.forecasting.forecasters import Setting, forecasters
from scitoolkit.forecasting.pod import POD
from scitoolkit.testing.forecaster import wave_series

ESTIMATORS = (
    PODTransformer(),
    PODTransformer(rank=1, mean=False),
    PolynomialForecaster(),
    PolynomialForecaster(degree=2, gap=1),
)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_the_checks_of_scikit_learn_pass(estimator):
    results = check_estimator(estimator, on_skip=None)
    assert len(results) > 40
    # The check of other kinds of arrays runs only where SCIPY_ARRAY_API is set.
    not_passed = {r["check_name"]: r["status"] for r in results if r["status"] != "passed"}
    assert not_passed.keys() <= {"check_array_api_input"}, not_passed


def latitudes_and_field():
    rng = np.random.default_rng(3)
    latitude = np.repeat(np.linspace(-70, 70, 5), 4)
    patterns = rng.standard_normal((3, 20))
    values = rng.standard_normal((60, 3)) * [5, 2, 1] @ patterns + 280
    return latitude, values + 0.01 * rng.standard_normal(values.shape)


def test_coefficients_are_those_of_the_pod_of_the_field():
    latitude, values = latitudes_and_field()
    grid = {"lat": latitude[::4], "lon": np.arange(4.0)}
    field = xr.DataArray(values.reshape(60, 5, 4), grid, ("time", "lat", "lon"))
    field["lat"].attrs["units"] = "degrees_north"
    whole = POD(rank=3).fit(field)
    # The POD's weights are those of the areas between the edges of the rows.
    estimator = PODTransformer(rank=3, weights=whole.weights_.values.ravel())
    ours = estimator.fit_transform(values)
    theirs = whole.transform(field).values
    scale = np.sqrt(whole.weights_.values.mean())
    np.testing.assert_allclose(ours * scale, theirs, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        estimator.explained_variance_ratio_, whole.explained_variance_ratio_, rtol=1e-10
    )


def test_components_are_orthonormal_under_the_weights_and_restore_the_values():
    latitude, values = latitudes_and_field()
    weights = np.cos(np.radians(latitude))
    pod = PODTransformer(rank=3, weights=weights).fit(values)
    gram = pod.components_ * (weights / weights.mean()) @ pod.components_.T
    np.testing.assert_allclose(gram, np.eye(3), atol=1e-12)
    restored = pod.inverse_transform(pod.transform(values))
    assert np.abs(restored - values).max() < 0.1
    assert pod.get_feature_names_out().tolist() == [f"podtransformer{k}" for k in range(3)]
    with pytest.raises(DataError, match="2 modes"):
        pod.inverse_transform(np.zeros((4, 2)))


def test_the_map_is_that_of_the_forecaster():
    record = wave_series(120)
    config = forecasters.get("polynomial_map")(degree=2, lags=2, penalty=1e-4)
    model = config.build(Setting(2, 1, np.ones(12), rank=3, rows=120)).fit([record])
    X, y = lagged_table(model.frame.encode(*record), inputs=2, leads=1)
    ours = PolynomialForecaster(2, penalties=(1e-4,)).fit(X, y - X[:, :3])
    np.testing.assert_allclose(ours.coef_, model.weights_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("degree", [1, 2])
def test_a_known_map_is_recovered(degree):
    rng = np.random.default_rng(0)
    record = np.empty((400, 2))
    record[0] = 0.1, -0.2
    for step in range(399):
        a, b = record[step]
        record[step + 1] = [0.9 * a - 0.3 * b, 0.3 * a + 0.8 * b]
        record[step + 1] += (degree - 1) * 0.2 * a**2 + 0.1 * rng.standard_normal(2)
    X, y = lagged_table(record, inputs=1, leads=1)
    model = PolynomialForecaster(degree, penalties=(1e-9,)).fit(X, y)
    linear = model.coef_[1:3].T
    np.testing.assert_allclose(linear, [[0.9, -0.3], [0.3, 0.8]], atol=0.1)
    assert model.predict(X).shape == y.shape


def test_the_penalty_is_selected_on_blocks_of_time():
    # Ten periods of a wave in 30 noisy copies: without a penalty the noise is fitted.
    rng = np.random.default_rng(1)
    wave = np.sin(0.5 * np.arange(160.0))
    X = wave[:-1, None] + 0.5 * rng.standard_normal((159, 60))
    model = PolynomialForecaster(penalties=(1e-9, 1.0), gap=2).fit(X, wave[1:])
    assert model.penalty_ == 1.0
    assert model.errors_[1] < model.errors_[0]
    unseen = wave[:-1, None] + 0.5 * rng.standard_normal((159, 60))
    alone = PolynomialForecaster(penalties=(1e-9,)).fit(X, wave[1:])
    assert model.score(unseen, wave[1:]) > alone.score(unseen, wave[1:])


def test_a_pipeline_with_a_grid_search_takes_both():
    record = wave_series(200).values
    X, y = lagged_table(record, inputs=2, leads=1)
    steps = make_pipeline(PODTransformer(rank=2), PolynomialForecaster())
    grid = {"podtransformer__rank": [1, 6]}
    search = GridSearchCV(steps, grid, cv=TimeSeriesSplit(3)).fit(X, y)
    assert search.best_params_ == {"podtransformer__rank": 6}


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (PolynomialForecaster(4), "degree=4"),
        (PolynomialForecaster(penalties=()), "penalties"),
        (PolynomialForecaster(penalties=(1.0, -1.0)), "penalties"),
        (PolynomialForecaster(folds=1), "folds=1"),
        (PolynomialForecaster(gap=-1), "gap=-1"),
        (PODTransformer(rank=0), "rank=0"),
        (PODTransformer(weights=[1.0]), "weights of shape"),
        (PODTransformer(weights=[1.0, 0.0, 1.0]), "weights"),
        (PolynomialForecaster(penalties=0.1), "penalties=0.1"),
        (PolynomialForecaster(penalties=[np.inf]), "penalties"),
        (PolynomialForecaster(folds="4"), "folds='4'"),
        (PolynomialForecaster(degree=1.0), "degree=1.0"),
        (PolynomialForecaster(gap=1.5), "gap=1.5"),
    ],
    ids=repr,
)
def test_bad_arguments_are_refused_by_name(estimator, message):
    X = np.random.default_rng(0).standard_normal((20, 3))
    with pytest.raises(ConfigError, match=message):
        estimator.fit(X, X[:, 0])


def test_too_many_monomials_and_a_vector_are_refused():
    with pytest.raises(ConfigError, match="monomials of degree 3"):
        PolynomialForecaster(3).fit(np.ones((4, 100)), np.ones(4))
    with pytest.raises(DataError, match="shape"):
        lagged_table(np.arange(5.0), inputs=2, leads=1)
    with pytest.raises(ConfigError, match="inputs=0"):
        lagged_table(np.ones((5, 1)), inputs=0, leads=1)
    with pytest.raises(ConfigError, match="leads=-1"):
        lagged_table(np.ones((5, 1)), inputs=2, leads=-1)


def test_a_share_of_variance_may_be_a_number_of_numpy():
    X = np.random.default_rng(0).standard_normal((20, 3))
    shares = PODTransformer(np.float32(0.5)), PODTransformer(0.5)
    assert len({pod.fit(X).pod_.rank_ for pod in shares}) == 1


def test_without_scikit_learn_the_extra_is_named():
    code = (
        "import sys; sys.modules['sklearn.base'] = None\n"
        "from scitoolkit.core.errors import BackendError\n"
        "from scitoolkit import forecasting\n"
        "try: forecasting.PODTransformer\n"
        "except BackendError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "scitoolkit[sklearn]" in out.stdout

"""POD against numpy and scikit-learn, its invariants, and its messages for bad input."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.forecasting.pod import POD

# Small enough that the fields below are streamed, large enough for a few rows of them.
STREAMED = 16_500_000


def make_field(times=60, lats=9, lons=16, *, seed=0, dtype="float64", land=True) -> xr.DataArray:
    """A field of falling variance about a large mean, with land and monthly dates."""
    random = np.random.default_rng(seed)
    scale = 2.0 ** -np.arange(20)
    values = random.standard_normal((times, 20)) * scale @ random.standard_normal((20, lats * lons))
    values = (values + 290.0).reshape(times, lats, lons).astype(dtype)
    if land:
        values[:, :2, :5] = np.nan
    coords = {
        "time": xr.date_range("2001-01-01", periods=times, freq="MS"),
        "lat": np.linspace(-80, 80, lats),
        "lon": np.arange(lons) * 20.0,
    }
    attrs = {"units": "K"}
    return xr.DataArray(values, coords, ("time", "lat", "lon"), name="sst", attrs=attrs)


def weighted_matrix(field: xr.DataArray) -> np.ndarray:
    anomaly = (field - field.mean("time")) * np.sqrt(np.cos(np.radians(field.lat)))
    matrix = anomaly.transpose("time", "lat", "lon").values.reshape(field.sizes["time"], -1)
    return matrix[:, ~np.isnan(matrix[0])]


def gram(pod: POD) -> np.ndarray:
    modes = pod.modes_.values.reshape(pod.rank_, -1)
    return (np.nan_to_num(modes) * pod.weights_.values.ravel()) @ np.nan_to_num(modes).T


def test_singular_values_are_those_of_the_weighted_anomalies():
    field = make_field()
    pod = POD(rank=6).fit(field)
    expected = np.linalg.svd(weighted_matrix(field), compute_uv=False)
    np.testing.assert_allclose(pod.singular_values_, expected[:6], rtol=1e-10)
    share = expected**2 / (expected**2).sum()
    np.testing.assert_allclose(pod.explained_variance_ratio_, share[:6], rtol=1e-9)


def test_coefficients_are_those_of_scikit_learn():
    from sklearn.decomposition import PCA

    field = make_field(land=False)
    pod = POD(rank=4, area_weights=False).fit(field)
    theirs = PCA(4, svd_solver="full").fit_transform(field.values.reshape(60, -1))
    np.testing.assert_allclose(np.abs(pod.transform(field)), np.abs(theirs), atol=1e-8)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(4, 20), st.integers(1, 5), st.integers(2, 6), st.integers(0, 99), st.integers(1, 3)
)
def test_modes_are_orthonormal_and_the_projection_is_idempotent(times, lats, lons, seed, rank):
    field = make_field(times, lats, lons, seed=seed, land=False)
    pod = POD(rank=min(rank, times - 1, lats * lons)).fit(field)
    np.testing.assert_allclose(gram(pod), np.eye(pod.rank_), atol=1e-9)
    inside = pod.inverse_transform(pod.transform(field))
    again = pod.inverse_transform(pod.transform(inside))
    np.testing.assert_allclose(again, inside, rtol=1e-10)
    lost = ((inside - field) ** 2).weighted(pod.weights_).mean()
    assert float(lost) ** 0.5 == pytest.approx(pod.truncation_error_, rel=1e-5, abs=1e-6)


def test_largest_entry_of_each_mode_is_positive():
    modes = POD(rank=5).fit(make_field()).modes_.values.reshape(5, -1)
    largest = np.nanargmax(np.abs(modes), axis=1)
    assert (modes[np.arange(5), largest] > 0).all()


def test_inverse_transform_restores_mask_units_coordinates_and_dtype():
    field = make_field(dtype="float32")
    pod = POD(rank=15).fit(field)
    back = pod.inverse_transform(pod.transform(field))
    assert back.dtype == np.float32
    assert back.attrs == field.attrs
    assert back.name == "sst"
    assert back.dims == field.dims
    xr.testing.assert_allclose(back, field, atol=2e-2)
    np.testing.assert_array_equal(np.isnan(back), np.isnan(field))


def test_values_at_masked_cells_change_nothing():
    field = make_field()
    mask = field.notnull().all("time")
    field[3, 4, 7] = np.nan  # masks this cell, whatever it holds at other times
    filled = field.fillna(1e30).where(~((field.lat == field.lat[4]) & (field.lon == 140)), 1e30)
    filled[3, 4, 7] = np.nan
    for memory in ("1GiB", STREAMED):
        plain = POD(rank=3, max_memory=memory).fit(field)
        leaky = POD(rank=3, max_memory=memory).fit(filled, mask=mask)
        assert plain.num_partly_missing_ == leaky.num_partly_missing_ == 1
        xr.testing.assert_identical(plain.modes_, leaky.modes_)
        xr.testing.assert_identical(plain.transform(field), leaky.transform(filled))


def test_order_of_dimensions_and_of_times_does_not_matter():
    field = make_field()
    pod = POD(rank=4).fit(field)
    turned = POD(rank=4).fit(field.transpose("lon", "time", "lat"))
    xr.testing.assert_allclose(turned.modes_.transpose(*pod.modes_.dims), pod.modes_)
    shuffled = field.isel(time=np.random.default_rng(1).permutation(60))
    xr.testing.assert_allclose(POD(rank=4).fit(shuffled).modes_, pod.modes_)


@pytest.mark.parametrize("dims", [("time", "x"), ("z", "y", "time", "x")])
def test_any_number_of_space_dimensions(dims):
    random = np.random.default_rng(0)
    field = xr.DataArray(random.standard_normal([7] * len(dims)), dims=dims)
    pod = POD(rank=6).fit(field)
    back = pod.inverse_transform(pod.transform(field))
    xr.testing.assert_allclose(back, field.transpose("time", ...))


def test_a_share_of_variance_picks_the_smallest_rank():
    pod = POD(rank=0.9).fit(make_field())
    total = pod.explained_variance_ratio_.cumsum()
    assert total[-1] >= 0.9 > total[-2]


@pytest.mark.parametrize("calendar", ["standard", "noleap", "360_day"])
def test_a_seasonal_cycle_is_removed_by_the_calendar(calendar):
    random = np.random.default_rng(0)
    time = xr.date_range("2001-01-01", periods=200, freq="7D", calendar=calendar, use_cftime=True)
    dates = xr.DataArray(time, dims="time", coords={"time": time})
    phase = 2 * np.pi * dates.dt.decimal_year
    series = (np.cos(phase) + 0.5 * np.sin(2 * phase)).drop_vars("time")
    noise = random.standard_normal(200)
    values = 5 + np.outer(series, [3.0, 1.0]) + 0.1 * np.outer(noise, [1.0, 2.0])
    field = xr.DataArray(values, {"time": time}, ("time", "x"), name="t")
    pod = POD(rank=1, seasonal_cycle=2).fit(field)
    assert pod.explained_variance_ratio_[0] > 0.999
    assert np.abs(pod.climatology(dates).values - values).max() < 1.0
    xr.testing.assert_allclose(pod.inverse_transform(pod.transform(field)), field, atol=0.05)


def test_inverse_transform_takes_samples_and_fewer_modes():
    field = make_field()
    pod = POD(rank=5, seasonal_cycle=1).fit(field)
    coefficients = pod.transform(field).isel(mode=slice(0, 3))
    samples = xr.concat([coefficients, 0 * coefficients], "sample").transpose("mode", ...)
    back = pod.inverse_transform(samples)
    assert back.dims == ("sample", "time", "lat", "lon")
    xr.testing.assert_allclose(
        back[1].drop_vars("sample", errors="ignore"), pod.climatology(field.time)
    )


def test_rank_by_forecast_error_keeps_what_can_be_forecast():
    random = np.random.default_rng(0)
    slow = np.cumsum(random.standard_normal((300, 2)), axis=0) * [3.0, 2.0]
    noise = 4.0 * random.standard_normal((300, 20))
    patterns = np.linalg.qr(random.standard_normal((40, 22)))[0]
    field = xr.DataArray(np.hstack([slow, noise]) @ patterns.T, dims=("time", "x"))
    pod = POD(rank="forecast", candidate_ranks=(1, 2, 20), horizon=2).fit(field)
    table = {row["rank"]: row for row in pod.rank_table_}
    assert pod.rank_ == min(table, key=lambda r: table[r]["forecast_rmse"]) > 1
    assert table[20]["truncation_rmse"] < table[2]["truncation_rmse"]
    assert all(row["forecast_rmse"] >= row["truncation_rmse"] for row in pod.rank_table_)


def test_save_and_load(tmp_path):
    field = make_field(dtype="float32")
    pod = POD(rank=3, seasonal_cycle=1).fit(field)
    again = POD.load(pod.save(tmp_path / "pod.safetensors"))
    assert again.get_params() == pod.get_params() | {"candidate_ranks": list(pod.candidate_ranks)}
    coefficients = pod.transform(field)
    xr.testing.assert_identical(again.transform(field), coefficients)
    xr.testing.assert_identical(
        again.inverse_transform(coefficients), pod.inverse_transform(coefficients)
    )
    assert again.truncation_error_ == pod.truncation_error_


def test_parameters_as_in_scikit_learn():
    from sklearn.base import clone

    pod = POD(rank=3, seed=4)
    assert clone(pod).get_params() == pod.get_params()
    assert pod.set_params(rank=7).rank == 7


BAD_FIELDS = {
    "1 time step": lambda: make_field(times=1),
    "cells are masked": lambda: make_field() * np.nan,
    "constant": lambda: make_field() * 0 + 290,
    "no time dim": lambda: make_field().drop_vars("time").rename(time="n"),
    "no space dimension": lambda: make_field()[:, 5, 5],
    "infinite": lambda: make_field().where(lambda f: f.lon != 160, np.inf),
    "values of type": lambda: make_field().astype("complex64"),
    "outside -90..90": lambda: make_field().assign_coords(lat=np.arange(9) * 50.0),
}


@pytest.mark.parametrize("message", BAD_FIELDS)
def test_fields_that_cannot_be_decomposed(message):
    with pytest.raises(DataError, match=message) as caught:
        POD(rank=2).fit(BAD_FIELDS[message]())
    assert "Fix:" in str(caught.value)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rank": 60}, "rank=60 exceeds the 59 modes"),
        ({"rank": 0}, "rank=0"),
        ({"rank": 1.5}, "rank=1.5"),
        ({"rank": "all"}, "rank='all'"),
        ({"seasonal_cycle": -1}, "seasonal_cycle=-1"),
        ({"max_memory": "lots"}, "max_memory 'lots'"),
        ({"max_memory": "1MB"}, "too small for 144 cells"),
    ],
)
def test_settings_that_cannot_be_met(params, message):
    with pytest.raises(ConfigError, match=message):
        POD(**params).fit(make_field())


def test_a_gap_in_new_data_is_named():
    field = make_field()
    pod = POD(rank=2).fit(field)
    field[7, 5, 5] = np.nan
    with pytest.raises(DataError, match=r"sst: 1 missing.*2001-08-01"):
        pod.transform(field)


def test_other_misuse():
    field = make_field()
    pod = POD(rank=2).fit(field)
    with pytest.raises(DataError, match="'lat' differs"):
        pod.transform(field.isel(lat=slice(None, None, -1)))
    with pytest.raises(DataError, match="field of dimensions"):
        pod.transform(field.isel(lat=slice(0, 3)))
    with pytest.raises(DataError, match="coefficients of dimensions"):
        pod.inverse_transform(xr.DataArray(np.zeros((2, 3)), dims=("time", "mode")))
    with pytest.raises(ConfigError, match="not been fitted"):
        POD().transform(field)
    with pytest.raises(ConfigError, match="no parameter 'ranks'"):
        POD().set_params(ranks=3)
    with pytest.raises(DataError, match="not the arrays of a POD"):
        POD.from_arrays({})
    with pytest.raises(DataError, match="needs dates"):
        POD(rank=1, seasonal_cycle=1).fit(field.assign_coords(time=np.arange(60)))


@pytest.mark.parametrize("numbers", [[0, 1, 2], [2, 3, 4], [1.5, 2, 3]])
def test_modes_that_do_not_exist_are_refused(numbers):
    pod = POD(rank=3).fit(make_field())
    coefficients = pod.transform(make_field())
    assert pod.inverse_transform(coefficients.isel(mode=[2, 0])).sizes["time"] == 60
    with pytest.raises(DataError, match=r"'mode' has the values .* 1 to 3"):
        pod.inverse_transform(coefficients.assign_coords(mode=numbers))


def test_candidate_ranks_are_limited_to_the_unmasked_cells():
    field = make_field().isel(lat=slice(2, 4), lon=slice(0, 8))
    field[0, 1] = np.nan  # eight of sixteen cells stay
    pod = POD(rank="forecast", candidate_ranks=(2, 5, 12)).fit(field)
    assert [row["rank"] for row in pod.rank_table_] == [2, 5, 8]

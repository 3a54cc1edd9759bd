"""The same points in another order are read in one order; other points are refused."""

import numpy as np
import pytest
import xarray as xr

from scitoolkit import open_campaign
from scitoolkit.core.errors import DataError
from scitoolkit.io.fields import open_fields

LAT, LON, LEV = np.linspace(-40, 40, 5), np.arange(6) * 60.0, np.array([10.0, 50.0, 200.0])


def values(run):
    return np.random.default_rng(run).random((6, 3, 5, 6)).astype("f4")


def truth(run):
    dims = ("time", "lev", "lat", "lon")
    coords = {"time": np.arange(6.0) + 6 * run, "lev": LEV, "lat": LAT, "lon": LON}
    found = xr.Dataset({"u": (dims, values(run)), "h": (dims[1:], values(run)[0])}, coords)
    found.lev.attrs |= {"units": "m", "positive": "down"}
    return found


def changed(found, how):
    if "lat" in how:
        found = found.isel(lat=slice(None, None, -1))
    if "lev" in how:
        found = found.isel(lev=slice(None, None, -1))
    if "lon" in how:
        found = found.assign_coords(lon=(found.lon + 180) % 360 - 180).sortby("lon")
    if "heights" in how:
        found = found.assign_coords(
            lev=("lev", -found.lev.values, {"units": "m", "positive": "up"})
        )
    if "km" in how:
        attrs = {"units": "km", "positive": found.lev.attrs["positive"]}
        found = found.assign_coords(lev=("lev", found.lev.values / 1000, attrs))
    if "order" in how:
        found = found.isel(lon=slice(None, None, -1))
    return found


def write(folder, how, which, kind="nc"):
    for run in range(3):
        found = changed(truth(run), how) if run in which else truth(run)
        if kind == "nc":
            found.to_netcdf(folder / f"run{run}.nc", engine="h5netcdf")
        else:
            found.to_zarr(folder / f"run{run}.zarr", consolidated=False)


ALL = "heights lev km lat lon"


@pytest.mark.parametrize(
    ("how", "kind", "which"),
    [
        *[("lat", "nc", (1,)), ("lev", "nc", (0, 2)), ("lon", "nc", (2,)), ("lat lon", "nc", (0,))],
        *[("lon order", "nc", (1,)), ("heights", "nc", (1,)), ("km", "nc", (1,))],
        *[(ALL, "nc", (1,)), (ALL, "nc", (0, 2)), (ALL, "zarr", (1,))],
    ],
)
def test_turned_files_are_read_in_the_order_of_the_first(tmp_path, kind, which, how):
    write(tmp_path, how, which, kind)
    expected = [truth(run) for run in range(3)]
    if 0 in which:
        expected = [changed(one, how) for one in expected]
    campaign = open_campaign(tmp_path, ["u", "h"], files="simulations")
    batches = list(campaign.loader(batch_size=4, shuffle=False, inputs=["u"], outputs=["h"]))
    inputs = np.concatenate([batch["x"] for batch in batches])[:, 0, 0]
    outputs = np.concatenate([batch["y"] for batch in batches])[:, 0, 0]
    assert np.array_equal(inputs, np.concatenate([e.u.values[:-1] for e in expected]))
    assert np.array_equal(
        outputs, np.concatenate([[e.h.values] * 5 for e in expected]).reshape(outputs.shape)
    )
    for run in range(3):
        found = campaign.dataset(run)
        assert np.array_equal(found.u.values, expected[run].u.values)
        assert np.array_equal(
            found.u[2:4, 1, 1:3, 2:].values, expected[run].u.values[2:4, 1, 1:3, 2:]
        )
        assert np.allclose(found.lat, expected[0].lat)
        assert np.allclose(found.lon, expected[0].lon)


@pytest.mark.parametrize("which", [(1,), (2,)])
def test_parts_of_one_simulation_are_turned_too(tmp_path, which):
    write(tmp_path, "lat lon", which)
    campaign = open_campaign(tmp_path, ["u"])
    assert campaign.found.index.num_simulations == 1
    expected = np.concatenate([values(run) for run in range(3)])
    assert np.array_equal(campaign.dataset(0).u.values, expected)


def test_a_cached_index_keeps_the_order(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    write(folder, "lat lon", (1,))
    for _ in range(2):
        campaign = open_campaign(folder, ["u"], cache=tmp_path / "cache", files="simulations")
        assert np.array_equal(campaign.dataset(1).u.values, values(1))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.assign_coords(lat=-np.linspace(-30, 50, 5)),
        lambda d: d.assign_coords(lon=d.lon + 30),
        lambda d: d.assign_coords(lev=("lev", LEV, {"units": "hPa"})),
        lambda d: d.assign_coords(lat=[-40.0, -20.0, np.nan, 20.0, 40.0]),
    ],
)
@pytest.mark.parametrize("twice", [False, True])
def test_other_points_are_refused_also_with_a_cache(tmp_path, change, twice):
    folder = tmp_path / "runs"
    folder.mkdir()
    for run in range(3):
        found = change(truth(run)) if run == 1 else truth(run)
        found.to_netcdf(folder / f"run{run}.nc", engine="h5netcdf")
    for _ in range(1 + twice):
        with pytest.raises(DataError, match="run1"):
            open_campaign(folder, ["u"], cache=tmp_path / "cache")


def test_statistics_are_those_of_one_order(tmp_path):
    from scitoolkit.io.campaign.rows import row_sets

    write(tmp_path, "lat lon", (1,))
    campaign = open_campaign(tmp_path, ["u"], files="simulations").found
    rows = row_sets(campaign, {"lat": slice(1, 3), "lon": slice(2, 5)})["u"]
    read = rows.members([1], 0, 6)[0]
    assert np.array_equal(read, values(1)[:, :, 1:3, 2:5])


@pytest.mark.parametrize("dim", ["lev", "lat", "lon"])
@pytest.mark.parametrize("same", [True, False])
def test_the_only_entry_of_a_dim_is_compared(tmp_path, dim, same):
    for run in range(3):
        at = 0 if same or run != 1 else 1
        truth(run).isel({dim: [at]}).to_netcdf(tmp_path / f"run{run}.nc", engine="h5netcdf")
    if same:
        assert open_campaign(tmp_path, ["u"]).found.index.num_rows == 18
        return
    with pytest.raises(DataError, match=f"{dim} runs from"):
        open_campaign(tmp_path, ["u"])


def curvilinear(folder, change, times=(0, 6)):
    lat, lon = np.meshgrid(np.linspace(-40, 40, 6), np.linspace(-180, 150, 7), indexing="ij")
    for run, begin in enumerate(times):
        found = xr.Dataset(
            {
                "u": (("time", "y", "x"), np.random.default_rng(run).random((6, 6, 7))),
                "lat2d": (("y", "x"), lat + lon / 9, {"units": "degrees_north"}),
                "XLONG": (("y", "x"), lon % 360 if run else lon),
            },
            {"time": np.arange(6.0) + begin},
        )
        (change(found) if run else found).to_netcdf(folder / f"run{run}.nc", engine="h5netcdf")


@pytest.mark.parametrize("dim", ["y", "x"])
def test_latitudes_of_two_dims_in_another_order_are_refused(tmp_path, dim):
    curvilinear(tmp_path, lambda found: found.isel({dim: slice(None, None, -1)}), (0, 100))
    with pytest.raises(DataError, match="other directions"):
        open_campaign(tmp_path, ["u"])
    with pytest.raises(DataError, match="of one grid"):
        open_fields(sorted(tmp_path.iterdir()), ["u"])


def test_another_region_is_another_simulation(tmp_path):
    def moved(found):
        return found.assign(lat2d=found.lat2d + 5)

    curvilinear(tmp_path, lambda found: found, (0, 6))
    assert open_campaign(tmp_path, ["u"]).found.index.num_simulations == 1
    curvilinear(tmp_path, moved, (0, 100))
    assert open_campaign(tmp_path, ["u"]).found.index.num_simulations == 2
    curvilinear(tmp_path, moved, (0, 6))
    with pytest.raises(DataError, match="cells of a simulation"):
        open_campaign(tmp_path, ["u"])


@pytest.mark.parametrize("points", [[0, 1, 3, 4, 5, 6], [10, 11, 12, 13, 14, 15]])
def test_parts_of_a_simulation_have_the_same_points(tmp_path, points):
    for run in range(2):
        values_of_x = points if run else np.arange(6)
        found = xr.Dataset(
            {"u": (("time", "x"), values(run)[:, 0, 0])},
            {"time": np.arange(6.0) + 6 * run, "x": np.asarray(values_of_x, float)},
        )
        found.to_netcdf(tmp_path / f"run{run}.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="as in the first part"):
        open_campaign(tmp_path, ["u"])
    assert open_campaign(tmp_path, ["u"], files="simulations").found.index.num_simulations == 2


@pytest.mark.parametrize(
    ("dim", "points", "accepted"),
    [
        ("lon", [340.0, 350, 0, 10, 20, 30], True),
        ("lon", [30.0, 20, 10, 0, 350, 340], True),
        ("lon", [0.0, 20, 10, 30, 40, 50], False),
        ("x", [0.0, 1, 2, 1.5, 3, 4], False),
        ("x", [5.0, 4, 3, 2, 1, 0], True),
    ],
)
def test_a_coordinate_that_turns_around_is_refused(tmp_path, dim, points, accepted):
    u = values(0)[:, 0, 0]
    xr.Dataset({"u": (("time", dim), u)}, {dim: points}).to_netcdf(
        tmp_path / "a.nc", engine="h5netcdf"
    )
    if accepted:
        assert open_campaign(tmp_path, ["u"]).found.index.num_rows == 6
        return
    with pytest.raises(DataError, match=f"{dim} turns around"):
        open_campaign(tmp_path, ["u"])

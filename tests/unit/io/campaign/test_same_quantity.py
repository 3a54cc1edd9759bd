"""Roles, times, orders and quantities that differ between dims or files without a word."""

from __future__ import annotations

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from scitoolkit import open_campaign
from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.measure import Question, measure_pieces, pieces_of
from scitoolkit.io.campaign.windows import CampaignWindows
from scitoolkit.io.fields import open_fields


def wave(times=12, y=5, x=6, seed=0):
    return np.random.default_rng(seed).standard_normal((times, y, x))


def save(path, values, dims=("time", "y", "x"), coords=None, attrs=None):
    dataset = xr.Dataset({"u": (dims, values, attrs or {})}, coords or {})
    dataset.to_netcdf(path, engine="h5netcdf")


@pytest.mark.parametrize("attrs", [{"standard_name": "realization"}, {"axis": "E"}])
def test_a_dim_of_members_by_attributes_counts_simulations(tmp_path, attrs):
    members = np.stack([wave(seed=s) for s in range(3)], 1)
    coords = {"ens": ("ens", np.arange(3.0), attrs)}
    save(tmp_path / "a.nc", members, ("time", "ens", "y", "x"), coords)
    assert open_campaign(tmp_path / "a.nc").found.index.num_simulations == 3


def test_two_times_by_their_names_are_asked_for(tmp_path):
    frames = np.stack([wave(seed=s) for s in range(5)], 1)
    for number in range(2):
        data = xr.Dataset({"u": (("t", "frame", "y", "x"), frames)})
        data.to_netcdf(tmp_path / f"{number}.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="t and frame are both times"):
        open_campaign(tmp_path)


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
@pytest.mark.parametrize("form", ["%Y-%m-%d_%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"])
def test_times_that_are_text_are_times(tmp_path, engine, form):
    for number, hours in enumerate((1, 3)):
        dates = pd.date_range("2000-01-24", periods=12, freq=f"{hours}h").strftime(form)
        texts = ("Time", np.array(dates.to_list(), "S"))
        data = xr.Dataset({"u": (("Time", "y", "x"), wave(seed=number)), "Times": texts})
        data.to_netcdf(tmp_path / f"wrfout_{number}.nc", engine=engine)
    first = open_campaign(tmp_path / "wrfout_0.nc", ["u"]).dataset(0)
    assert str(first.time.values[1])[:19] == "2000-01-24T01:00:00"
    with pytest.raises(DataError, match=r"time step of 3 hours\. Allowed: 1 hour"):
        open_campaign(tmp_path, ["u"])
    with open_fields(tmp_path / "wrfout_1.nc", ["u"]) as data:
        assert (np.diff(data.Time.values) == np.timedelta64(3, "h")).all()


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"cell_methods": "time: mean"}, {"cell_methods": "area: mean time: maximum"}),
        ({"standard_name": "air_temperature"}, {"standard_name": "sea_surface_temperature"}),
        ({"positive": "up"}, {"positive": "down"}),
    ],
)
def test_another_quantity_of_the_same_name_is_refused(tmp_path, first, other):
    save(tmp_path / "a.nc", wave(), attrs=first)
    save(tmp_path / "b.nc", wave(seed=1), attrs=other)
    with pytest.raises(DataError, match=next(iter(other))):
        open_campaign(tmp_path)
    save(tmp_path / "b.nc", wave(seed=1), attrs={})
    assert open_campaign(tmp_path).found.index.num_simulations == 2


def test_the_order_is_that_of_the_first_file_that_states_it(tmp_path):
    latitude = np.linspace(-40, 40, 5)
    save(tmp_path / "a.nc", wave())
    for number, order in enumerate((1, -1)):
        coords = {"y": ("y", latitude[::order], {"units": "degrees_north"})}
        save(tmp_path / f"b{number}.nc", wave(seed=7)[:, ::order], coords=coords)
    campaign = open_campaign(tmp_path, files="simulations")
    np.testing.assert_array_equal(campaign.dataset(2).u, campaign.dataset(1).u)


@pytest.mark.parametrize("kind", ["i4", "i8", "c16"])
def test_changes_that_float32_loses_are_refused_in_every_kind_of_number(tmp_path, kind):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = (2**30 + np.round(10 * wave())).astype(kind)
    campaign = open_campaign(tmp_path / "a.h5", dims=["time", "y", "x"])
    pieces = dict(enumerate(pieces_of(campaign.found, campaign.found.index.blocks)))
    with pytest.raises(DataError, match=r"float32 spacing.*data.offsets="):
        measure_pieces(campaign.found, campaign.rows, pieces, Question())


@pytest.mark.parametrize("kind", ["f8", "i4", "chunked", "zarr"])
def test_changes_beside_a_large_mean_remain_if_it_is_subtracted_first(tmp_path, kind):
    """Values of `u - mean` in float64 are the reference of rows, moments and float32 windows."""
    mean, values = 2.0**30, 2.0**30 + np.round(10 * wave())
    data = xr.Dataset({"u": (("time", "y", "x"), values.astype("i4" if kind == "i4" else "f8"))})
    if kind == "zarr":
        data.to_zarr(tmp_path / "a.zarr", consolidated=False)
    else:
        chunks = {"u": {"chunksizes": (4, 5, 6)}} if kind == "chunked" else {}
        data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=chunks)
    campaign = open_campaign(tmp_path, offsets={"u": mean})
    np.testing.assert_array_equal(campaign.dataset(0).u, values - mean)
    assert campaign.found.template().u.attrs["long_name"] == f"u minus {mean}"
    pieces = dict(enumerate(pieces_of(campaign.found, campaign.found.index.blocks)))
    moments = measure_pieces(campaign.found, campaign.rows, pieces, Question())[0].values["u"]
    np.testing.assert_allclose(
        np.ravel(moments.result()), [(values - mean).mean(), values.std()], rtol=1e-12
    )
    windows = CampaignWindows(campaign.found, campaign.rows, np.arange(3), [0], dtype=np.float32)
    read = windows.read(np.arange(3))["u"]
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read[:, 0], values[:3] - mean)
    with pytest.raises(DataError, match="offsets, q: the variable is not read"):
        open_campaign(tmp_path, offsets={"q": 1.0})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d.assign(mask=(("y", "x"), np.zeros((5, 6)))), "mask has other values"),
        (lambda d: d.drop_vars("y"), "no coordinate y, which .*a.nc has"),
        (lambda d: d.assign(u=d.u.assign_attrs(cell_methods="time: sum")), "time: sum"),
    ],
)
def test_joined_files_agree_in_what_has_no_time(tmp_path, change, match):
    pytest.importorskip("dask")
    mask = ("mask", (("y", "x"), np.ones((5, 6))))
    for number, name in enumerate("ab"):
        coords = {"time": np.arange(12.0) + 12 * number, "y": np.arange(5.0)}
        attrs = {"cell_methods": "time: mean"}
        data = xr.Dataset({"u": (("time", "y", "x"), wave(), attrs), mask[0]: mask[1]}, coords)
        (change(data) if number else data).to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=match):
        open_fields(tmp_path / "*.nc")
    if match.startswith("mask"):  # of what is not read, nothing is asked
        assert open_fields(tmp_path / "*.nc", ["u"]).sizes["time"] == 24


def test_tiles_of_one_domain_are_no_simulations(tmp_path):
    for number in (1, 2):
        save(tmp_path / f"atmos.tile{number}.nc", wave(seed=number))
    with pytest.raises(DataError, match=r"tile 2 of a domain, and .*tile1.nc is tile 1"):
        open_campaign(tmp_path)
    assert open_campaign(tmp_path / "*.tile1*").found.index.num_rows == 12


def test_a_file_of_coordinates_alone_is_refused(tmp_path):
    data = xr.Dataset({"time": (("t", "y", "x"), wave())})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="no field among its arrays"):
        open_campaign(tmp_path / "a.nc")


PACKED = {"u": {"dtype": "i2", "scale_factor": 1e-3, "_FillValue": -32768}}


@pytest.mark.parametrize(
    ("types", "result"),
    [(["f4", "f8", "f4"], "f8"), (["f4", "packed", "i4"], "f8"), (["packed", "f4", "f4"], "f4")],
)
def test_files_may_store_one_variable_in_several_types(tmp_path, types, result):
    values = {}
    for number, kind in enumerate(types):
        data = xr.Dataset({"u": (("time", "y", "x"), np.round(4 * wave(seed=number)))})
        values[number] = data.u.values
        encoding = (
            PACKED
            if kind == "packed"
            else {"u": {"dtype": kind, "_FillValue": -99 if kind == "i4" else None}}
        )
        path = tmp_path / f"{number}.nc"
        data.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    tree = open_campaign(tmp_path).tree()
    for node, wanted in zip(tree.children.values(), values.values(), strict=True):
        read = node["u"]
        assert read.dtype == np.dtype(result)
        np.testing.assert_allclose(read.values, wanted, atol=1e-6)


def test_another_order_of_dims_in_one_file_is_refused_with_a_fix(tmp_path):
    save(tmp_path / "0.nc", wave())
    save(tmp_path / "1.nc", wave().transpose(0, 2, 1), ("time", "x", "y"))
    with pytest.raises(DataError, match=r"one order of dims: ds.transpose"):
        open_campaign(tmp_path)

"""A field of a group has the coordinates that it sees: its own, then those of groups around it."""

from __future__ import annotations

import h5netcdf
import h5py
import numpy as np
import pytest

from scitoolkit import open_campaign
from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign import CampaignOptions
from scitoolkit.io.campaign.headers import read_header
from scitoolkit.io.campaign.plain import Plain
from scitoolkit.io.campaign.sphere_cells import cells_on_sphere
from scitoolkit.io.sphere import areas_of_latitudes

ROWS = 6
LEVELS = {"a": [1000.0, 500.0], "b": [500.0, 1000.0]}
LATITUDES = {"a": [10.0, 20.0, 30.0], "b": [30.0, 20.0, 10.0]}
TIMES = {"a": np.arange(6.0), "b": 100 + 2 * np.arange(6.0)}


def write(path, levels=LEVELS, latitudes=LATITUDES, times=TIMES, without=()):
    """Write `u_a` and `u_b`, whose values are their levels, each in a group with coordinates."""
    with h5netcdf.File(path, "w") as file:
        for name in levels:
            group = file.create_group(name)
            group.dimensions = {"time": ROWS, "level": 2, "lat": 3, "x": 4}
            for dim, points, attrs in (
                ("level", levels, {"axis": "Z"}),
                ("lat", latitudes, {"units": "degrees_north"}),
                ("time", times, {"axis": "T"}),
            ):
                if (name, dim) not in without:
                    variable = group.create_variable(dim, (dim,), data=np.array(points[name]))
                    variable.attrs.update(attrs)
            u = np.zeros((ROWS, 2, 3, 4), "f4") + np.array(levels[name], "f4")[:, None, None]
            group.create_variable(f"u_{name}", ("time", "level", "lat", "x"), data=u)
    return path


@pytest.mark.parametrize("name", ["u_a", "u_b"])
def test_a_field_has_the_coordinates_of_its_group(tmp_path, name):
    path, group = write(tmp_path / "g.nc"), name[-1]
    chosen = open_campaign(path, [name], select={"level": 500.0})
    assert (chosen.windows()[0]["x"] == 500).all()
    data = chosen.dataset(0)
    assert data.lat.values.tolist() == LATITUDES[group]
    assert data.time.values.tolist() == TIMES[group].tolist()
    channels = open_campaign(path, [name], levels="channels")
    assert list(channels.found.channels) == [f"{name}_{level:g}" for level in LEVELS[group]]


def test_levels_that_only_another_group_lacks_are_read(tmp_path):
    path = write(tmp_path / "g.nc", levels={"a": [1000.0, 850.0], "b": [500.0, 1000.0]})
    assert (open_campaign(path, ["u_b"], select={"level": 500.0}).windows()[0]["x"] == 500).all()
    with pytest.raises(DataError, match="no single entry 500 of level"):
        open_campaign(path, ["u_a"], select={"level": 500.0})


def test_a_group_without_a_coordinate_takes_none_from_beside_it(tmp_path):
    path = write(tmp_path / "g.nc", without=[("b", "lat"), ("b", "time"), ("b", "level")])
    data = open_campaign(path, ["u_b"], select={"level": 1}).dataset(0)
    assert not {"lat", "time"} & set(data.coords)
    assert (data["u_b"] == 1000).all()


def test_a_dim_of_a_group_hides_the_times_around_it(tmp_path):
    path = write(tmp_path / "g.nc", without=[("b", "time")])
    with h5netcdf.File(path, "a") as file:
        file.dimensions["time"] = ROWS
        file.create_variable("time", ("time",), data=50 + np.arange(6.0))
    for name, times in (("u_a", TIMES["a"].tolist()), ("u_b", None)):
        data = open_campaign(path, [name], select={"level": 500}).dataset(0)
        assert (data.time.values.tolist() if "time" in data.coords else None) == times


@pytest.mark.parametrize(
    ("other", "text"),
    [({"latitudes": LATITUDES}, "other points along lat"), ({"times": TIMES}, "other times than")],
)
def test_fields_of_groups_with_other_coordinates_are_not_mixed(tmp_path, other, text):
    same = {
        key: dict.fromkeys("ab", all_of["a"])
        for key, all_of in (("levels", LEVELS), ("latitudes", LATITUDES), ("times", TIMES))
    }
    both = open_campaign(write(tmp_path / "same.nc", **same), ["u_a", "u_b"])
    assert both.dataset(0).lat.values.tolist() == LATITUDES["a"]
    path = write(tmp_path / "g.nc", **{**same, **other})
    with pytest.raises(DataError, match=text):
        open_campaign(path, ["u_a", "u_b"]).dataset(0)


def test_attached_scales_decide_and_groups_around_are_searched(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for place, first in (("x", 0), ("a/x", 10), ("grid/x", 20)):
            file[place] = first + np.arange(4.0)
            file[place].make_scale("x")
        for place in ("a/attached", "a/named", "b/inner/around", "b/attached"):
            file[place] = np.zeros((5, 4))
            file[place].dims[1].label = "x"
        file["a/attached"].dims[1].attach_scale(file["grid/x"])
        file["b/attached"].dims[1].attach_scale(file["a/x"])
    header = read_header(tmp_path / "a.h5")
    for field, path in (
        ("a/attached", "grid/x"),
        ("a/named", "a/x"),
        ("b/inner/around", "x"),
        ("b/attached", "a/x"),
    ):
        stored = Plain.coordinate(header, "", "x", field)
        assert stored is not None
        assert stored.name == path


def test_a_group_of_coordinates_alone_is_that_of_all_fields(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["fields/u"], file["grid/x"] = np.zeros((5, 4)), np.arange(4.0)
        file["grid/time"] = np.arange(5.0)
    header = read_header(tmp_path / "a.h5")
    options = CampaignOptions(dims={"u": ["time", "x"]})
    x = Plain.coordinate(header, "", "x", "fields/u")
    times = Plain.times(header, "", options, ["fields/u"])
    assert [one and one.name for one in (x, times)] == ["grid/x", "grid/time"]


def beside(path, own=(), other=()):
    """Write a field in group `a` and in `b`, and further variables of each group."""
    with h5netcdf.File(path, "w") as file:
        for name, more in (("a", own), ("b", other)):
            group = file.create_group(name)
            group.dimensions = {"time": ROWS, "y": 3, "x": 4}
            u = np.random.default_rng(0).normal(size=(ROWS, 3, 4)).astype("f4")
            field = group.create_variable(f"u_{name}", ("time", "y", "x"), data=u)
            field.attrs["cell_measures"] = "area: cells"
            for variable, dims, values, attrs in more:
                group.create_variable(variable, dims, data=np.array(values)).attrs.update(attrs)
    return path


CELLS = ("cells", ("y", "x"), np.arange(1.0, 13).reshape(3, 4), {"units": "m2"})
EQUAL = ("cells", ("y", "x"), np.ones((3, 4)), {"units": "m2"})
NORTH = ("phi", ("y",), [0.0, 40, 80], {"units": "degrees_north"})
SOUTH = ("phi", ("y",), [-10.0, -5, 0], {"units": "degrees_north"})


@pytest.mark.parametrize("more", [CELLS, NORTH])
def test_cells_of_another_group_are_not_those_of_a_field(tmp_path, more):
    path = beside(tmp_path / "a.nc", other=[more])
    assert cells_on_sphere(open_campaign(path, ["u_a"]).found).areas is None
    areas = cells_on_sphere(open_campaign(path, ["u_b"]).found).areas
    assert areas is not None
    assert areas[0] == more[1]


@pytest.mark.parametrize(("own", "other"), [(EQUAL, CELLS), (SOUTH, NORTH)])
def test_each_field_has_the_cells_of_its_group(tmp_path, own, other):
    path = beside(tmp_path / "a.nc", [own], [other])
    for name, more in (("u_a", own), ("u_b", other)):
        areas = cells_on_sphere(open_campaign(path, [name]).found).areas
        values = more[2] if more[0] == "cells" else areas_of_latitudes(np.array(more[2]))
        np.testing.assert_array_equal(areas[1], values)
    with pytest.raises(DataError, match="fields"):
        cells_on_sphere(open_campaign(path, ["u_a", "u_b"]).found)


def test_cells_of_a_group_of_coordinates_are_those_of_all_fields(tmp_path):
    path = beside(tmp_path / "a.nc")
    with h5netcdf.File(path, "a") as file:
        grid = file.create_group("grid")
        grid.dimensions = {"y": 3, "x": 4}
        grid.create_variable("cells", ("y", "x"), data=CELLS[2])
    areas = cells_on_sphere(open_campaign(path, ["u_b"]).found).areas
    assert areas is not None
    np.testing.assert_array_equal(areas[1], CELLS[2])


def test_a_role_stated_in_another_group_is_not_taken(tmp_path):
    time = ("x", ("x",), np.arange(4.0), {"units": "days since 2001-01-01"})
    number = ("y", ("y",), np.arange(3.0), {"standard_name": "realization"})
    path = beside(tmp_path / "a.nc", other=[time, number])
    arrays = Plain.arrays(read_header(path), CampaignOptions())
    assert arrays["a/u_a"].roles == ("@time", "y", "x")
    assert arrays["b/u_b"].roles == ("time", "@simulation", "@time")


def test_a_dim_closes_by_the_coordinate_of_its_group(tmp_path):
    path = tmp_path / "a.nc"
    around = {"units": "degrees_east", "axis": "X"}
    with h5netcdf.File(path, "w") as file:
        for name, points in (("a", [0.0, 10, 20, 30]), ("b", [0.0, 90, 180, 270])):
            group = file.create_group(name)
            group.dimensions = {"time": ROWS, "y": 3, "XC": 4, "XG": 4}
            group.create_variable("XC", ("XC",), data=np.array(points)).attrs.update(around)
            for field, dim in ((f"u_{name}", "XG"), (f"t_{name}", "XC")):
                group.create_variable(field, ("time", "y", dim), data=np.ones((ROWS, 3, 4)))
    for name, cells in (("a", 3), ("b", 4)):
        fields = [f"t_{name}", f"u_{name}"]
        campaign = open_campaign(path, fields, staggered="centres")
        assert campaign.windows()[0]["x"].shape[-1] == cells

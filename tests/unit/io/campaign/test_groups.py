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
from scitoolkit.io.campaign.layouts import Plain

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

"""One level or member is read by its value, and levels become channels."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
import yaml

import scitoolkit
from scitoolkit import open_campaign
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart

ROWS, MEMBERS, Y, X = 12, 3, 8, 9
LEVELS = np.array([1000.0, 500.0, 0.5, -2.0])
ORDERS = [
    ("time", "number", "level", "y", "x"),
    ("number", "level", "y", "x", "time"),
    ("level", "time", "y", "x", "number"),
]


def values(seed=0):
    return np.random.default_rng(seed).random((ROWS, MEMBERS, len(LEVELS), Y, X)).astype("f4")


def write(path, t, order=ORDERS[0], levels=LEVELS, level="level", coordinate=True):
    attrs = {"units": "hPa", "positive": "down", "axis": "Z"}
    data = xr.Dataset({"t": (ORDERS[0], t)}).transpose(*order)
    data["ps"] = (("time", "y", "x"), t[:, 0, 0])
    if coordinate:
        data = data.assign_coords(level=("level", levels, attrs))
    data = data.assign_coords(time=np.arange(ROWS + 0.0))
    data.rename({"level": level}).to_netcdf(path, engine="h5netcdf")
    return path


def rows(campaign):
    return np.concatenate([b["x"][:, 0] for b in campaign.loader(5, horizon=0, shuffle=False)])


@pytest.mark.parametrize("order", ORDERS)
def test_a_level_and_a_member_are_read_by_value(tmp_path, order):
    path, t = write(tmp_path / "a.nc", values(), order), values()
    one = open_campaign(path, ["t"], select={"level": 0.5, "number": 2})
    assert list(one.found.channels) == ["t"]
    assert np.array_equal(rows(one)[:, 0], t[:, 2, 2])
    level = open_campaign(path, ["t"], select={"level": -2})
    assert level.found.index.num_simulations == MEMBERS
    expected = t[:, :, 3].swapaxes(0, 1).reshape(-1, Y, X)
    assert np.array_equal(rows(level)[:, 0], expected)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("level", ["level", "plev", "zeta"])
def test_levels_are_channels(tmp_path, order, level):
    path, t = write(tmp_path / "a.nc", values(), order, level=level), values()
    campaign = open_campaign(path, ["t"], select={"number": 1}, levels="channels")
    assert list(campaign.found.channels) == ["t_1000", "t_500", "t_0_5", "t_minus2"]
    assert np.array_equal(rows(campaign), t[:, 1])


def test_without_a_coordinate_entries_are_numbered(tmp_path):
    path, t = write(tmp_path / "a.nc", values(), coordinate=False), values()
    campaign = open_campaign(path, ["t"], select={"number": 1, "level": 3})
    assert np.array_equal(rows(campaign)[:, 0], t[:, 1, 3])
    named = open_campaign(path, ["t"], levels="channels")
    assert list(named.found.channels) == ["t_0", "t_1", "t_2", "t_3"]
    for wrong in (4, -1, 1.5, np.nan):
        with pytest.raises(DataError, match="an entry from 0 to 3"):
            open_campaign(path, ["t"], select={"level": wrong})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"select": {"level": 7}}, "no single entry 7 of level"),
        ({"select": {"level": np.nan}}, "no single entry nan of level"),
        ({"select": {"lev": 500}}, "no dim 'lev'"),
        ({"select": {"time": 1}}, "no dim 'time' to select"),
    ],
)
def test_what_is_not_there_is_refused(tmp_path, options, text):
    path = write(tmp_path / "a.nc", values())
    with pytest.raises(DataError, match=text):
        open_campaign(path, ["t"], **options)


def test_a_dim_that_counts_samples_is_not_selected(tmp_path):
    data = xr.Dataset({"u": (("t", "y", "x"), np.ones((5, 4, 3), "f4"))})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="t counts the samples"):
        open_campaign(tmp_path / "a.nc", ["u"], select={"t": 1})
    with pytest.raises(DataError, match="no dim is vertical"):
        open_campaign(tmp_path / "a.nc", ["u"], levels="channels")


@pytest.mark.parametrize("levels", [LEVELS[::-1], LEVELS + 1.0])
def test_files_with_other_levels_are_not_mixed(tmp_path, levels):
    write(tmp_path / "a.nc", values())
    write(tmp_path / "b.nc", values(1), levels=levels)
    for options in ({"select": {"level": 500}}, {"levels": "channels"}):
        with pytest.raises(DataError, match="the entries of level are"):
            open_campaign(tmp_path, ["t"], files="simulations", **options)


def started(path, level="", member=""):
    data = DataToStart([str(path)], [str(path)], [], "", level, member)
    return job_for_task("emulate").starter(data)


def test_init_writes_them_and_the_job_runs(tmp_path):
    path = write(tmp_path / "a.nc", values())
    job = yaml.safe_load(started(path, "500", "2"))
    assert job["data"]["select"] == {"level": 500, "number": 2}
    assert job["data"]["outputs"] == ["ps", "t"]
    (tmp_path / "job.yaml").write_text(started(path, "channels", "1"))
    few = [f"run.root={tmp_path}", "training.steps=1", "~training.schedule"]
    run = scitoolkit.train(tmp_path / "job.yaml", few)
    output = tmp_path / "next.nc"
    scitoolkit.predict(run.path, path, output)
    with scitoolkit.open_fields(output) as predicted:
        assert {"t_1000", "t_500", "t_0_5", "t_minus2", "ps"} <= set(predicted.data_vars)
    other = write(tmp_path / "b.nc", values(), levels=LEVELS + 1)
    with pytest.raises((DataError, ConfigError), match=r"t_1001|t_1000|1001"):
        scitoolkit.predict(run.path, other, tmp_path / "other.nc")


@pytest.mark.parametrize(("level", "member"), [("x", ""), ("", "r1"), ("nan", "")])
def test_init_asks_for_a_number(tmp_path, level, member):
    path = write(tmp_path / "a.nc", values())
    with pytest.raises(DataError, match="a number"):
        started(path, level, member)


@pytest.mark.parametrize("entries", [(["u", "v"], ["v", "u"]), ([0, 1], [1, 0])])
@pytest.mark.parametrize("same", [False, True])
def test_components_in_another_order_are_refused(tmp_path, entries, same):
    for run in range(2):
        u = np.random.default_rng(run).random((6, 2, 8, 9))
        coords = {"time": np.arange(6.0) + 6 * run, "channel": entries[0 if same else run]}
        data = xr.Dataset({"u": (("time", "channel", "y", "x"), u)}, coords)
        data.to_netcdf(tmp_path / f"a{run}.nc", engine="h5netcdf")
    if same:
        assert set(open_campaign(tmp_path, ["u"]).found.channels) == {"u_0", "u_1"}
        return
    with pytest.raises(DataError, match="entries of channel are"):
        open_campaign(tmp_path, ["u"])

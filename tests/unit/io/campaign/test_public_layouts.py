"""Layouts of well-known programs: `init` writes a job that reads what was written."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
import yaml
from program_layouts import layout_names, write_layout

from scitoolkit import open_campaign
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart

_BENCHMARKS = Path(__file__).resolve().parents[4] / "benchmarks"
sys.path.insert(0, str(_BENCHMARKS))  # of the modules that the benchmark imports
_FILE = _BENCHMARKS / "io" / "layouts_public.py"
_SPEC = importlib.util.spec_from_file_location("benchmark_layouts_public", _FILE)
public = importlib.util.module_from_spec(_SPEC)
sys.modules["benchmark_layouts_public"] = public
_SPEC.loader.exec_module(public)
REFUSED = ("icon", "mpas", "fesom", "flash", "athena", "openfoam_mesh")


@pytest.mark.parametrize("name", layout_names())
def test_what_is_read_is_what_was_written(tmp_path, name):
    result = public.outcome(name, tmp_path, seed=len(name), train=False)
    expected = "refused by name" if name in REFUSED else "trained"
    assert result["result"].startswith(expected), result["why"]


@pytest.mark.parametrize("name", ["cmems", "the_well"])
def test_what_is_written_enters_the_network(tmp_path, name):
    folder = tmp_path / "data"
    folder.mkdir()
    assert public.outcome(name, folder)["result"] == "trained"


def test_sizes_and_values_follow_the_seed(tmp_path):
    shapes = set()
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        files = write_layout("cmip6_noleap", folder, seed)
        shapes.add(files.truth["ua"][0].shape)
    assert len(shapes) > 1


def test_a_name_that_is_none_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="did you mean roms"):
        write_layout("rom", tmp_path)


def started(path):
    text = job_for_task("emulate").starter(DataToStart([str(path)], [str(path)], [], ""))
    return yaml.safe_load(text), text


@pytest.mark.parametrize(
    ("lengths", "split"),
    [
        ([60], {"by": "time", "train": 0.7, "validation": 0.15, "test": 0.15}),
        ([12], {"by": "time", "train": 8, "validation": 2, "test": 2}),
        ([3], {"by": "time", "train": 3, "validation": 0, "test": 0}),
        ([20, 20, 20], {"train": 0.7, "validation": 0.15, "test": 0.15}),
        ([20, 20, 1], {"by": "time", "train": 1, "validation": 0, "test": 0}),
    ],
)
def test_the_split_that_init_writes_has_windows(tmp_path, lengths, split):
    for number, rows in enumerate(lengths):
        values = np.random.default_rng(number).random((rows, 8, 8))
        data = xr.Dataset({"u": (("time", "y", "x"), values)}, {"time": np.arange(rows + 0.0)})
        data.to_netcdf(tmp_path / f"run{number}.nc", engine="h5netcdf")
    assert started(tmp_path)[0]["split"] == split


@pytest.mark.parametrize("name", ["XLAT", "nav_lat", "mesh_lat", "anything"])
def test_latitudes_of_two_dims_are_not_learned(tmp_path, name):
    attrs = {"units": "degrees_north"} if name in ("mesh_lat", "anything") else {}
    u, lat = np.random.default_rng(0).random((12, 8, 9)), np.ones((8, 9))
    data = xr.Dataset({"u": (("time", "y", "x"), u), name: (("y", "x"), lat, attrs)})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    job, text = started(tmp_path / "a.nc")
    assert job["data"]["inputs"] == ["u"]
    assert f"{name} describes other variables" in text


def test_a_vector_of_steps_comes_before_a_scalar_time(tmp_path):
    u = np.random.default_rng(0).random((12, 8, 9))
    hours = {"units": "hours since 2000-01-01"}
    data = xr.Dataset(
        {"u": (("step", "y", "x"), u)},
        {"step": np.arange(12.0) * 6, "time": ((), 0.0, hours)},
    )
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    assert started(tmp_path / "a.nc")[0]["data"]["outputs"] == ["u"]


def test_links_that_are_not_followed_are_listed(tmp_path):
    u = np.random.default_rng(0).random((12, 8, 9))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"], file["raw/q"] = u, u
        file["p"] = h5py.ExternalLink("other.h5", "p")
        file["group/lost"] = h5py.SoftLink("/nothing")
        file["alias"] = h5py.SoftLink("/v")
    text = started(tmp_path / "a.h5")[1]
    assert "p left out: a link to other.h5: p, not followed" in text
    assert "group/lost left out: a link to /nothing, not followed" in text
    assert "alias" not in text


@pytest.mark.parametrize("names", ["run{}", "{}", "Sample-{}", "layer{}"])
def test_groups_that_look_like_simulations_are_no_variables(tmp_path, names):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for k in range(3):
            file[f"{names.format(k)}/u"] = np.random.default_rng(k).random((12, 8, 9))
    if names == "layer{}":
        assert len(started(tmp_path / "a.h5")[0]["data"]["outputs"]) == 3
        return
    with pytest.raises(DataError, match="look like simulations"):
        started(tmp_path / "a.h5")


def forecasts(folder, lead, attrs=None):
    """Write 3 files of 4 forecasts of 5 leads each, one a week."""
    attrs = {"standard_name": "forecast_period"} if attrs is None else attrs
    for number in range(3):
        u = np.random.default_rng(number).random((4, 5, 6, 7))
        start = "reference", 28.0 * number + 7 * np.arange(4.0), {"units": "days since 2001-01-01"}
        points = {"reference": start, lead: (lead, 6 * np.arange(5.0), {"units": "hours", **attrs})}
        data = xr.Dataset({"u": (("reference", lead, "y", "x"), u)}, points)
        data.to_netcdf(folder / f"f{number}.nc", engine="h5netcdf", unlimited_dims=[])
    return folder


@pytest.mark.parametrize(("lead", "attrs"), [("step", {}), ("lead_time", {}), ("tau", None)])
def test_a_lead_is_no_dim_of_space(tmp_path, lead, attrs):
    forecasts(tmp_path, lead, attrs)
    with pytest.raises(DataError, match=f"{lead} is a time beside the one that counts"):
        started(tmp_path)
    data = DataToStart([str(tmp_path)], [str(tmp_path)], sample_dim=lead)
    assert f"sample_dim: {lead}" in job_for_task("emulate").starter(data)
    found = open_campaign(tmp_path, ["u"], sample_dim=lead).found
    assert (found.index.num_simulations, found.index.num_rows) == (12, 60)
    assert found.channels["u"].dims == ("y", "x")
    assert open_campaign(tmp_path, ["u"], select={lead: 6}).windows()[0]["x"].shape == (1, 1, 6, 7)
    assert open_campaign(tmp_path, ["u"], grid=(lead, "y", "x")).found.index.num_rows == 12

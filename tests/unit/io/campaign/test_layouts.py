"""Every layout gives the values that were written, simulation by simulation."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign import CampaignOptions, SampleIndex, open_campaign
from scitoolkit.io.campaign.dim_roles import auxiliary_names
from scitoolkit.io.campaign.headers import read_header
from scitoolkit.io.campaign.open import open_campaign as open_loader
from scitoolkit.io.campaign.split import CampaignSplit, split_campaign

_FILE = Path(__file__).parents[4] / "benchmarks" / "io" / "layouts.py"
_SPEC = importlib.util.spec_from_file_location("benchmark_layouts", _FILE)
layouts = importlib.util.module_from_spec(_SPEC)
sys.modules["benchmark_layouts"] = layouts
_SPEC.loader.exec_module(layouts)


@pytest.mark.parametrize("name", layouts.LAYOUTS)
def test_what_is_read_is_what_was_written(tmp_path, name):
    assert layouts.disagreements(layouts.LAYOUTS[name](tmp_path)) == []


def test_no_window_of_a_random_campaign_crosses_simulations():
    rng = np.random.default_rng(0)
    for _ in range(300):
        segments = int(rng.integers(1, 12))
        simulation = np.cumsum(rng.integers(0, 2, segments))
        index = SampleIndex(simulation, rng.integers(1, 9, segments))
        span = int(rng.integers(1, 12))
        starts = index.starts([range(index.num_rows)], span)
        first, last = index.simulation_of(starts), index.simulation_of(starts + span - 1)
        assert np.array_equal(first, last)
        # And none is missing.
        assert len(starts) == sum(max(len(b) - span + 1, 0) for b in index.blocks)


def test_parts_share_no_simulation_or_no_row():
    index = SampleIndex(np.arange(10), [7] * 10)
    by_simulation = split_campaign(index, 2, CampaignSplit(), own_test=True)
    assert [len(by_simulation[p]) for p in ("train", "validation", "test")] == [8, 1, 1]
    in_time = split_campaign(
        index, 2, CampaignSplit(by="time", train=3, validation=2, test=2), own_test=True
    )
    assert in_time["train"][1] == range(7, 10)
    assert len(in_time["test"]) == 10


def test_two_equal_readings_are_asked_about(tmp_path):
    for run in range(2):
        for step in range(3):
            with h5py.File(tmp_path / f"run{run}_t{step}.h5", "w") as file:
                file["u"] = np.ones((4, 4))
                for axis, dim in enumerate("xy"):
                    file["u"].dims[axis].label = dim
    with pytest.raises(DataError, match="which counts simulations") as caught:
        open_campaign(tmp_path, ["u"])
    assert "data.pattern" in str(caught.value)
    found = open_campaign(tmp_path, ["u"], CampaignOptions(pattern="run{simulation}_t{step}.h5"))
    assert found.index.bounds.tolist() == [0, 3, 6]


def test_coefficients_of_dedalus_and_overlapping_parts_are_refused(tmp_path):
    written = layouts.dedalus(tmp_path)
    with h5py.File(tmp_path / "snapshots_s3.h5", "a") as file:
        file["scales/sim_time"][...] -= 0.15
    with pytest.raises(DataError, match="before the end of"):
        open_campaign(written.path, ["b"], CampaignOptions(files="parts"))
    with h5py.File(tmp_path / "snapshots_s1.h5", "a") as file:
        file["tasks/b"].attrs["grid_space"] = [False, True]
    with pytest.raises(DataError, match="coefficients"):
        open_campaign(written.path, ["b"])


def test_inspect_shows_a_campaign(tmp_path):
    from typer.testing import CliRunner

    from scitoolkit.cli.main import app

    written = layouts.netcdf4(tmp_path)
    for given in (str(tmp_path), written.path):
        shown = CliRunner().invoke(app, ["inspect", given])
        assert "3 simulations of 6 to 8 rows in 3 files" in shown.output
        assert "u: u(@time, x, y)" in shown.output


PARTS = {
    "NEMO": {"attrs": {"DOMAIN_size_global": np.array([14, 8]), "DOMAIN_number_total": 2}},
    "BOUT": {"scalars": {"MXSUB": 7, "MXG": 0, "nx": 14, "ny": 8}},
    "MITgcm": {"attrs": {"Nx": 14, "Ny": 8, "sNx": 7, "sNy": 8}},
    "CROCO": {"attrs": {"partition": np.array([0, 0, 2, 1])}},
}


@pytest.mark.parametrize("program", PARTS)
@pytest.mark.parametrize("whole", [False, True])
def test_the_part_of_one_process_is_no_simulation(tmp_path, program, whole):
    width = 14 if whole else 7
    stated = {k: dict(v) for k, v in PARTS[program].items()}
    attrs = stated.get("attrs", {})
    if whole and "sNx" in attrs:
        attrs["sNx"] = 14
    if whole and "partition" in attrs:
        attrs["partition"] = np.array([0, 0, 1, 1])
    u = np.random.default_rng(0).random((6, 8, width))
    data = xr.Dataset({"u": (("time", "y", "x"), u)}, attrs=attrs)
    data = data.assign({k: ((), np.int32(v)) for k, v in stated.get("scalars", {}).items()})
    data.to_netcdf(tmp_path / "a.0000.nc", engine="h5netcdf")
    if whole:
        assert open_campaign(tmp_path, ["u"]).index.num_rows == 6
        return
    with pytest.raises(DataError, match=f"one process of {program}"):
        open_campaign(tmp_path, ["u"])


def test_packed_coordinates_are_unpacked(tmp_path):
    u = np.random.default_rng(0).random((6, 5, 7))
    packed = {"units": "degrees_north", "scale_factor": 0.01, "add_offset": 3.0}
    data = xr.Dataset({"u": (("time", "lat", "x"), u)})
    data["lat"] = ("lat", np.arange(-2000, 3000, 1000, dtype="i2"), packed)
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    points = open_campaign(tmp_path / "a.nc", ["u"]).coordinates["lat"][1]
    np.testing.assert_allclose(points, [-17, -7, 3, 13, 23], rtol=1e-12)
    chosen = CampaignOptions(select={"lat": -7.0})
    component = open_campaign(tmp_path / "a.nc", ["u"], chosen).channels["u"].components
    assert component == (1,)


def test_a_key_of_cell_measures_names_no_variable(tmp_path):
    values = np.random.default_rng(0).random((5, 4, 4), "f4")
    dims = ("time", "y", "x")
    data = xr.Dataset({"area": (dims, values), "u": (dims, values)})
    data["u"].attrs["cell_measures"] = "area: areacella"
    data["areacella"] = (("y", "x"), values[0])
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    assert auxiliary_names(read_header(tmp_path / "a.nc")) == {"areacella"}
    assert sorted(open_loader(tmp_path / "a.nc").found.names) == ["area", "u"]


def test_a_field_of_the_well_that_is_constant_along_a_dim_is_refused_if_asked_for(tmp_path):
    with h5py.File(tmp_path / "w.hdf5", "w") as file:
        file.attrs.update({"n_trajectories": 2, "n_spatial_dims": 2})
        group = file.create_group("dimensions")
        group.attrs["spatial_dims"] = ["x", "y"]
        group["x"], group["y"], group["time"] = np.arange(4.0), np.arange(5.0), np.arange(6.0)
        fields = file.create_group("t0_fields")
        for name, shape, varying in (("p", (2, 6, 4, 5), True), ("wall", (4,), False)):
            fields[name] = np.ones(shape, "f4")
            fields[name].attrs.update({"sample_varying": varying, "time_varying": varying})
            fields[name].attrs["dim_varying"] = [True, varying]
    assert list(open_loader(tmp_path / "w.hdf5", ["p"]).found.channels) == ["p"]
    with pytest.raises(DataError, match="t0_fields/wall: constant along y"):
        open_loader(tmp_path / "w.hdf5", ["p", "wall"])

"""`scitoolkit init` writes configurations that run as they are."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from scitoolkit import api
from scitoolkit.cli.main import app, run_cli
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.io.fields import write_fields

ROOT = Path(__file__).parents[3]
_FILE = ROOT / "benchmarks" / "io" / "layouts.py"
_SPEC = importlib.util.spec_from_file_location("layouts_to_start", _FILE)
layouts = importlib.util.module_from_spec(_SPEC)
sys.modules["layouts_to_start"] = layouts
_SPEC.loader.exec_module(layouts)
FEW = ["training.steps=5", "training.progress=false"]


def start(what: str, tmp_path: Path, *files: str) -> Path:
    out = tmp_path / "mine" / "my.yaml"
    out.parent.mkdir(exist_ok=True)
    assert run_cli(["init", what, *files, "-o", str(out)]) == 0
    return out


def short(name: str) -> str:
    return name.rpartition("/")[2]


def start_or_raise(tmp_path: Path, file: str) -> Path:
    out = tmp_path / "my.yaml"
    app(["init", "emulate", file, "-o", str(out)], standalone_mode=False)
    return out


@pytest.mark.parametrize("name", [n for n in layouts.LAYOUTS if n != "one_map_a_file"])
def test_an_emulator_of_each_layout_trains_without_an_edit(tmp_path, name):
    written = layouts.LAYOUTS[name](tmp_path)
    if written.refused:
        with pytest.raises(DataError, match=written.refused):
            api.train(start_or_raise(tmp_path, str(written.path)), FEW)
        return
    path = start("emulate", tmp_path, str(written.path))
    run = api.train(path, [*FEW, f"run.root={tmp_path}/out"])
    config = load_config(EmulationConfig, run.path / "config.yaml")
    asked = {*config.data.inputs, *config.data.outputs}
    assert {n.rpartition("/")[2] for n in asked} >= {
        n.rpartition("/")[2] for n in written.variables
    }
    assert config.data.pattern == written.options.pattern
    assert config.data.lead == written.options.lead


def test_what_can_be_read_in_two_ways_is_asked_about(tmp_path):
    for i in range(3):
        with h5py.File(tmp_path / f"a{i}.h5", "w") as file:
            file["u"] = np.ones((16, 16))
    with pytest.raises(DataError, match="time,x or y,x"):
        CliRunner().invoke(
            app, ["init", "emulate", str(tmp_path)], catch_exceptions=False, standalone_mode=False
        )
    shown = CliRunner().invoke(app, ["init", "emulate", str(tmp_path), "--dims", "time,x"])
    assert "dims: [time, x]" in shown.output


def test_nothing_is_overwritten_and_a_task_without_a_domain_is_refused(tmp_path):
    (tmp_path / "my.yaml").write_text("mine")
    for arguments in (["emulate", "x", "-o", str(tmp_path / "my.yaml")], ["fly", "x"]):
        with pytest.raises(ConfigError):
            CliRunner().invoke(
                app, ["init", *arguments], catch_exceptions=False, standalone_mode=False
            )


def test_super_resolution_and_forecasts_of_a_field_run(tmp_path):
    t, x = np.arange(48.0), np.linspace(0, 1, 16)
    u = np.sin(x[None, :, None] * 6 + t[:, None, None] / 3) + x[None, None, :]
    data = xr.Dataset(
        {"u": (("time", "y", "x"), u.astype("f4"), {"units": "m/s"})},
        coords={"time": t, "x": x, "y": x},
    )
    file = write_fields(data, tmp_path / "u.nc")
    for what in ("superres", "forecast"):
        path = start(what, tmp_path, str(file))
        assert api.train(path, [*FEW, f"run.root={tmp_path}/out"]).path
        path.unlink()


@pytest.mark.parametrize("driver", ["alike", "own"])
def test_a_variable_alike_in_all_simulations_is_marked_as_a_driver(tmp_path, driver):
    rng = np.random.default_rng(0)
    heating = np.sin(np.arange(20))[:, None] * np.ones((20, 16))
    for i in range(3):
        data = xr.Dataset(
            {
                "u": (("time", "x"), rng.random((20, 16))),
                "heating": (("time", "x"), heating + (0 if driver == "alike" else i)),
            },
            coords={"time": np.arange(20.0)},
        )
        data.to_netcdf(tmp_path / f"run{i}.nc", engine="h5netcdf")
    text = start("emulate", tmp_path, f"{tmp_path}/run*.nc").read_text()
    remark = "# heating    # alike in all simulations, as a driver is; one is in inputs alone\n"
    assert (remark in text) == (driver == "alike")
    assert "  outputs: [heating, u]\n" in text


def test_a_land_mask_is_no_input_but_a_depth_is(tmp_path):
    rng = np.random.default_rng(0)
    land = rng.random((12, 16)) < 0.3
    dims = ("latitude", "longitude")
    data = xr.Dataset(
        {
            "sst": (("time", *dims), np.where(land, np.nan, rng.random((40, 12, 16)))),
            "mask": (dims, np.where(land, 2, 1).astype("i1")),
            "depth": (dims, np.where(land, np.nan, rng.random((12, 16)))),
        },
        coords={"time": np.arange(40.0), "latitude": np.linspace(60, -50, 12)},
    )
    data.to_netcdf(tmp_path / "ocean.nc", engine="h5netcdf")
    text = start("emulate", tmp_path, str(tmp_path / "ocean.nc")).read_text()
    assert "  inputs: [sst, depth]\n" in text
    assert "# mask    # one value in all cells with data: left out\n" in text
    assert "  steps: 2000\n" in text


@pytest.mark.parametrize(
    ("shape", "network"),
    [
        ((64, 96), "{name: unet, widths: [64, 96, 128], patch: 2}"),
        ((64, 95), "{name: unet, widths: [32, 64, 96, 128]}"),  # no whole patches
        ((32, 96), "{name: unet, widths: [32, 64, 96]}"),
    ],
)
def test_large_fields_of_two_dims_are_merged_in_patches(tmp_path, shape, network):
    values = np.random.default_rng(0).random((12, *shape), dtype="f4")
    data = xr.Dataset({"u": (("time", "y", "x"), values)}, coords={"time": np.arange(12.0)})
    data.to_netcdf(tmp_path / "flow.nc", engine="h5netcdf")
    path = start("emulate", tmp_path, str(tmp_path / "flow.nc"))
    assert f"model: {network}\n" in path.read_text()
    assert api.check(path)


def test_a_volume_has_fewer_steps_and_names_each_dim(tmp_path):
    values = np.random.default_rng(0).random((40, 32, 32, 32), dtype="f4")
    data = xr.Dataset({"u": (("time", "z", "y", "x"), values)}, coords={"time": np.arange(40.0)})
    data.to_netcdf(tmp_path / "box.nc", engine="h5netcdf")
    text = start("emulate", tmp_path, str(tmp_path / "box.nc")).read_text()
    assert "  steps: 300\n" in text
    assert "# boundary: {z: circular, y: circular, x: circular}" in text


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch_geometric
def test_shipped_data_of_the_other_domains_run(tmp_path):
    for what, file, few in (
        ("compress", "nyx_small/nyx_z255_32.h5", []),
        ("potential", "acac/train_300K.xyz", FEW),
        ("graph", "cora/cora.npz", ["training.epochs=2"]),
    ):
        path = start(what, tmp_path, str(ROOT / "datasets" / file))
        assert api.train(path, [*few, f"run.root={tmp_path}/out"]).path
        path.unlink()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["series.nc"],
            "no task. Allowed: compress, emulate, forecast, graph, potential, superres.",
        ),
        (["series.nc"], "Fix: scitoolkit init TASK series.nc"),
        (["forecast"], "no file. Fix: scitoolkit init forecast FILES"),
        (["forcast", "series.nc"], "unknown task 'forcast'"),
    ],
)
def test_what_is_missing_is_told(arguments, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_cli(["init", *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("command", [["init", "emulate"], ["init", "compress"], ["inspect"]])
def test_a_table_of_series_is_for_forecasts(tmp_path, capsys, command):
    (tmp_path / "flow.csv").write_text("time,u\n0,1\n1,2\n")
    assert run_cli([*command, str(tmp_path / "flow.csv")]) == 3
    assert "Fix: scitoolkit init forecast flow.csv" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["emulate", "forecast"])
def test_a_field_behind_a_filter_that_is_not_there_has_a_remedy(tmp_path, capsys, task):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        values = np.random.default_rng(0).normal(size=(20, 8, 8))
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created.set_chunk((20, 8, 8))
        created.set_filter(40000, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple(values.shape)
        stored = h5py.h5d.create(file.id, b"u", h5py.h5t.IEEE_F64LE, space, dcpl=created)
        stored.write_direct_chunk((0, 0, 0), values.tobytes(), 0)
    out = tmp_path / "my.yaml"
    if run_cli(["init", task, str(tmp_path / "u.h5"), "-o", str(out)]) == 0:
        run_cli(["run", str(out), "--dry-run"])
    assert "scitoolkit decompress IN OUT" in capsys.readouterr().err

"""The plan of a compression lists every variable and is near to what is written then."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from scitoolkit.cli.main import run_cli
from scitoolkit.compression import Bound, Options
from scitoolkit.compression.files import FilePlan, compress_file
from scitoolkit.compression.planned import planned


def waves(seed: int, shape: tuple[int, ...] = (20, 60, 70)) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).cumsum(-1).astype("f4")


def climate_file(folder: Path) -> Path:
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        file["t"], file["q"], file["lat"] = waves(0), waves(1), waves(2, (60, 70))
        file["q"][:, :9] = 1e20
        file["q"].attrs["_FillValue"] = np.float32(1e20)
        file["t"].attrs["coordinates"] = "lat"
        file["number"], file["label"], file["scalar"] = np.arange(3000), ["a", "b"], 3.0
    return path


@pytest.mark.parametrize(
    ("bound", "options", "container"),
    [
        (Bound("rel", 1e-3), Options(), "auto"),
        (Bound("pw_rel", 1e-2), Options(), "auto"),
        (Bound("rel", 1e-3), Options(objective="speed"), "stream"),
        (Bound("abs", 0.0), Options(), "filter"),
    ],
)
def test_the_plan_is_near_to_what_is_written(bound, options, container, tmp_path: Path) -> None:
    path = climate_file(tmp_path)
    plan = FilePlan(bound, {}, options, container=container)
    rows = {row.name: row for row in planned(path, plan)}
    assert set(rows) == {"t", "q", "lat", "number", "label", "scalar"}
    assert (rows["lat"].role, rows["lat"].bound, rows["lat"].codec) == (
        "coordinate",
        "exact",
        "copied",
    )
    assert {n for n, row in rows.items() if row.bound != "exact"} == {"t", "q"}
    for record in compress_file(path, tmp_path / "b.h5", plan):
        row = rows[record["name"]]
        assert row.estimated == pytest.approx(record["bytes"], rel=0.1)
        assert row.codec.partition(" ")[0] == record["codec"].partition(" ")[0]


def test_stores_and_single_arrays_have_plans(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    root.create_array("t", data=waves(0))
    root.create_array("n", data=np.arange(9))
    np.save(tmp_path / "a.npy", waves(3))
    plan = FilePlan(Bound("rel", 1e-3), {}, Options())
    rows = planned(tmp_path / "a.zarr", plan)
    assert {(row.name, row.bound) for row in rows} == {("t", "rel=0.001"), ("n", "exact")}
    (row,) = planned(tmp_path / "a.npy", plan)
    (record,) = [compress_file(tmp_path / "a.npy", tmp_path / "a.sci", plan)[0]]
    assert row.estimated == pytest.approx(record["bytes"], rel=0.1)


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = climate_file(tmp_path), tmp_path / "b.h5"
    command = ["compress", str(path), str(target), "--rel", "1e-3", "--dry-run"]
    assert run_cli(command) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("variable", "coordinate", "rel=0.001"))
    assert run_cli([*command, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["files"]
    assert {row["name"] for row in one["variables"]} >= {"t", "lat"}
    assert not target.exists()

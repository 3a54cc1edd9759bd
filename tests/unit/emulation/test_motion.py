"""The rollout that a report begins with."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr
from PIL import Image

from scitoolkit import api
from scitoolkit.emulation.motion import FRAMES, MOST_CELLS, Motion
from scitoolkit.emulation.variables import Layout, Variable
from scitoolkit.io.fields import write_fields


def test_a_report_begins_with_truth_forecast_and_error_at_rest_and_in_motion(job, tmp_path):
    rng = np.random.default_rng(0)
    slow, fast = (np.cumsum(rng.normal(size=(30, 12, 8)), 0) * s for s in (0.01, 1.0))
    level = rng.normal(size=(1, 12, 8))
    fields = {
        n: (("time", "x", "z"), (level + v).astype("f4"), {"units": "K"})
        for n, v in (("slow", slow), ("fast", fast))
    }
    path = write_fields(xr.Dataset(fields), tmp_path / "flow.nc")
    config = job(
        {"path": str(path), "inputs": ["slow", "fast"], "outputs": ["slow", "fast"]},
        split={"train": 8, "validation": 0, "test": 22},
        training={"steps": 1},
        model={"name": "unet", "widths": [4]},
        rollout={"long": 0},
    )
    run = api.run(config)
    figures = json.loads((run.path / "results.json").read_text())["figures"]
    assert [panel["label"] for panel in figures[0]["panels"]] == [
        f"{name}: {kind}" for name in ("slow", "fast") for kind in ("truth", "emulator", "error")
    ]
    assert figures[1]["title"] == "fast in motion"
    assert [panel["label"] for panel in figures[1]["panels"]] == ["truth", "emulator", "error"]
    (image,) = (run.path / "report").rglob("02-fast-in-motion.png")
    assert image.stat().st_size < 2_000_000
    with Image.open(image) as animation:
        assert animation.n_frames == FRAMES
    page = (run.path / "report" / "index.html").read_text()
    assert page.index("fast in motion") < page.index(
        "Rollout error against the number of steps: slow, fast"
    )
    with xr.open_dataset(run.path / "results.nc") as found, xr.open_dataset(path) as given:
        steps = found["rollout_step"].values
        assert steps[0] == 1
        assert steps[-1] == 21
        truth = given["fast"].isel(time=8 + steps).values
        assert np.array_equal(found["fast_motion_truth"].values, truth)
        error = found["fast_motion_emulator"] - found["fast_motion_truth"]
        assert np.allclose(found["fast_motion_error"], error)


def test_a_field_of_one_dim_is_drawn_over_position_and_step(wave_job):
    run = api.run(wave_job(training={"steps": 1}, rollout={"long": 0}))
    first = json.loads((run.path / "results.json").read_text())["figures"][0]
    assert first["title"] == "u over the rollout"
    assert not first["animate"]
    with xr.open_dataset(run.path / "results.nc") as found:
        assert found["u_motion_error"].dims == ("rollout_step", "x")
        assert found["rollout_step"].values.tolist() == list(range(1, 12))


def test_frames_and_cells_are_bounded():
    grid = {"z": 3, "y": 600, "x": 20}
    field = Variable("u", tuple(grid), tuple(grid.values()), "", True)
    coordinates = {"y": list(np.arange(600.0)), "x": list(np.arange(20.0))}
    motion = Motion(Layout((), (field,), grid, coordinates, "t"), "u", 1000)
    frame = {"u": np.arange(3 * 600 * 20.0).reshape(3, 600, 20)}
    for step in range(1, 1001):
        motion.add(step, frame, frame)
    found = motion.dataset()["u_motion_truth"]
    assert found.dims == ("rollout_step", "y_shown", "x")
    assert found.sizes["rollout_step"] == FRAMES
    assert found.sizes["y_shown"] <= MOST_CELLS
    assert np.array_equal(found[0].values, frame["u"][1, ::3])
    assert found["y_shown"].values[1] == 3
    assert "One cell in 3" in motion.figure().note

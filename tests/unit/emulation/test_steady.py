"""Outputs that never change stay as they are, and weights of outputs in the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.stages import prepare
from scitoolkit.io.fields import write_fields

CELLS, ROWS = 16, 12


def write(path, seed: int, *, moving: bool = True, dtype: str = "f4"):
    """Write a wave `u`, a steady field `h`, a field `z` of 0, and a vector `k` of one moving."""
    rng = np.random.default_rng(seed)
    x, t = 2 * np.pi * np.arange(CELLS) / CELLS, 0.3 * np.arange(ROWS)
    u = np.sin(x - t[:, None] + seed)
    steady = np.repeat(2 + 0.6 * rng.standard_normal((1, CELLS)), ROWS, 0)
    k = np.stack([np.full(ROWS, 3e4 + seed), np.cos(t)], 1)
    fields = {
        "u": (("time", "x"), (u if moving else steady).astype(dtype)),
        "h": (("time", "x"), steady.astype(dtype)),
        "z": (("time", "x"), np.zeros_like(u, dtype)),
        "k": (("time", "c"), k.astype(dtype)),
    }
    return write_fields(xr.Dataset(fields, {"time": t, "x": x}), path)


@pytest.fixture
def plan(tmp_path, job):
    """Write a job on three files of `write`."""

    def make(moving: bool = True, dtype: str = "f4", **sections):
        for seed in range(3):
            write(tmp_path / f"s{seed}.nc", seed, moving=moving, dtype=dtype)
        names = sections.pop("names", ["u", "h", "z", "k"])
        data = {"path": str(tmp_path / "s*.nc"), "inputs": names, "outputs": names}
        sections = {
            "boundary": {"x": "circular"},
            "split": {"by": "simulation", "train": 1, "validation": 1, "test": 1},
            "training": {"steps": 6, "batch_size": 4},
            **sections,
        }
        return job({**data, **sections.pop("data", {})}, **sections)

    return make


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dtype": "f8", "data": {"history": 2}, "rollout": {"steps": 2, "noise": 0.5}},
        {"transport": {"x": 2}},
        {"weights_dtype": "int8", "training": {"steps": 6, "optimizer": {"name": "muon"}}},
    ],
)
def test_outputs_that_never_change_are_returned_exactly(tmp_path, plan, settings):
    run = api.run(plan(**settings)).path
    out = api.predict(run, tmp_path / "s2.nc", tmp_path / "p.nc", steps=5)
    with xr.open_dataset(out) as own, xr.open_dataset(tmp_path / "s2.nc") as source:
        for name in ("h", "z"):
            wanted = np.repeat(source[name].values[-1:].astype("f4"), 5, 0)
            np.testing.assert_array_equal(own[name].values, wanted)
        np.testing.assert_array_equal(own["k_0"].values, np.full(5, np.float32(3e4 + 2)))
        assert np.ptp(own["u"].values - source["u"].values[-1:]) > 1e-3
        assert np.ptp(own["k_1"].values) > 0
        assert np.isfinite(own["k_1"].values).all()


def test_an_output_of_one_value_is_that_value_without_residual(tmp_path, plan):
    run = api.run(plan(residual=False, names=["u", "z"])).path
    out = api.predict(run, tmp_path / "s2.nc", tmp_path / "p.nc", steps=3)
    with xr.open_dataset(out) as own:
        assert not own["z"].values.any()
        assert own["u"].values.any()


def test_nothing_that_changes_is_refused(plan):
    path = plan(moving=False, names=["u", "h", "z"])
    with pytest.raises(DataError, match="never change"):
        api.run(path)
    api.validate(path)


def test_a_field_that_rested_in_the_former_data_moves_after_fine_tuning(tmp_path, plan):
    still = plan(names=["u", "h"])
    former = api.run(still).path
    for seed in range(3):
        with xr.open_dataset(tmp_path / f"s{seed}.nc") as file:
            moved = file.load()
        moved["h"] = moved["h"] + np.sin(moved["time"]).astype("f4")
        write_fields(moved, tmp_path / f"s{seed}.nc")
    run = api.run(still, [f"start={{path: {former}}}"]).path
    out = api.predict(run, tmp_path / "s2.nc", tmp_path / "p.nc", steps=2)
    with xr.open_dataset(out) as own, xr.open_dataset(tmp_path / "s2.nc") as source:
        assert np.abs(own["h"].values - source["h"].values[-1:]).max() > 1e-3


@pytest.mark.parametrize("weights", [{"u": 2.0, "k": 0.5}, {"u": 0.0}, {"k": 3.0}, {"h": 7.0}, {}])
def test_the_loss_is_the_weighted_mean_over_outputs_that_change(plan, weights):
    config = load_config(EmulationConfig, plan(), [f"loss_weights={weights}"])
    begun = prepare(config)
    batch = next(iter(begun.loaders["train"]))
    batch = {n: torch.as_tensor(v) for n, v in batch.items()}
    begun.model.eval()
    with torch.no_grad():
        metrics = begun.task.metrics(batch)
        loss, _ = begun.task.loss(batch)
    begun.close()
    u, k = weights.get("u", 1.0), weights.get("k", 1.0)
    parts = [float(metrics[f"mse_{n}"]) for n in ("u", "k_0", "k_1")]
    assert parts[1] == 0.0 == float(metrics["mse_h"]) == float(metrics["mse_z"])
    expected = (u * parts[0] + k * parts[2]) / (u + k)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(metrics["loss"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "weights", "what"),
    [
        ({}, {"w": 1.0}, "w is not in the loss"),
        ({"names": ["u", "h"]}, {"u": 0.0, "h": 2.0}, "no output that changes"),
        ({"names": ["u"], "residual": False}, {"u": 0.0}, "no output that changes"),
    ],
)
def test_weights_that_no_training_can_use_are_refused(plan, settings, weights, what):
    with pytest.raises(ConfigError, match=what):
        api.run(plan(**settings, loss_weights=weights))
    with pytest.raises(ConfigError, match="loss_weights"):
        load_config(EmulationConfig, plan(), ["loss_weights={u: -1}"])


def test_init_tells_which_variables_rest(tmp_path, plan):
    plan()
    files = [str(tmp_path / f"s{seed}.nc") for seed in range(3)]
    text = job_for_task("emulate").starter(DataToStart(files, files))
    (line,) = [line for line in text.splitlines() if "no change" in line]
    assert line.startswith("# h, z ")

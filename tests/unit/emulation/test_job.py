from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
import xarray as xr

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems, load_config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.evaluation import OWN, PERSISTENCE, Evaluation
from scitoolkit.emulation.stages import prepare
from scitoolkit.io.fields import write_fields


def test_a_wave_is_learned_and_beats_what_needs_no_network(wave_job):
    path = wave_job(
        transport={"x": 8},
        symmetries={"shift": ["x"]},
        repeats=4,
        training={
            "steps": 150,
            "ema_decay": 0.9,
            "optimizer": {"name": "muon", "lr": 3e-3},
            "schedule": {"name": "cosine"},
        },
    )
    run = api.run(path)
    figures = json.loads((run.path / "model" / "metrics.json").read_text())
    assert figures["one_step_over_persistence_u"] < 0.1
    assert figures["steps_better_than_persistence"] >= 8
    assert figures["units"]["rmse_u"] == "m/s"
    assert (run.path / "report" / "index.html").is_file()
    record = json.loads((run.path / "model" / "fit.json").read_text())
    assert record["parts"]["train"] == [0, 18]
    assert record["cpu_seconds"] > 0


def test_a_rollout_is_predicted_into_a_file_that_xarray_opens(trained, wave, tmp_path):
    source, output = wave(5, seed=2, name="five.nc"), tmp_path / "out.nc"
    api.predict(trained, source, output)
    with xr.open_dataset(source) as given, xr.open_dataset(output) as found:
        assert found["u"].dims == ("time", "x")
        assert found["u"].attrs["units"] == "m/s"
        assert found["time"].values[:2] == pytest.approx(given["time"].values[-1] + [0.5, 1.0])
        assert found.sizes["time"] == 16
        config = load_config(EmulationConfig, trained / "config.yaml")
        emulator = surrogate.load(trained / "model", config)
        with torch.no_grad():
            (first,) = emulator(torch.from_numpy(given["u"].values[-1:]))
        assert np.allclose(found["u"].values[0], first[0].numpy(), atol=1e-6)


def test_maps_within_a_sample_from_fields_to_parameters(job, tmp_path):
    rng = np.random.default_rng(0)
    a, k = rng.uniform(1, 2, 40), rng.integers(1, 3, 40)
    y, x = np.meshgrid(np.arange(8) / 8, np.arange(10) / 10, indexing="ij")
    field = a[:, None, None] * np.cos(2 * np.pi * (k[:, None, None] * x + y))
    path = write_fields(
        xr.Dataset(
            {
                "image": (("case", "y", "x"), field.astype("f4")),
                "size": (("case", "what"), np.stack([a, k], 1), {"units": "1"}),
            }
        ),
        tmp_path / "maps.nc",
    )
    config = job(
        {
            "path": str(path),
            "inputs": ["image"],
            "outputs": ["size"],
            "sample_dim": "case",
            "lead": 0,
        },
        split={"train": 30, "validation": 5, "test": 5},
        training={"steps": 150},
    )
    run = api.train(config)
    results = api.evaluate(run.path)
    assert results.metrics["vrmse_size"] < 0.9
    assert "steps_better_than_persistence" not in results.metrics
    output = api.predict(run.path, path, tmp_path / "sizes.nc")
    with xr.open_dataset(output) as found:
        assert found["size"].shape == (40, 2)


def test_three_dims_of_a_plain_file_whose_dims_the_user_names(job, tmp_path):
    import h5py

    path = tmp_path / "plain.h5"
    with h5py.File(path, "w") as file:
        file["rho"] = np.random.default_rng(0).standard_normal((8, 6, 5, 4))
    config = job(
        {
            "path": str(path),
            "inputs": ["rho"],
            "outputs": ["rho"],
            "sample_dim": "t",
            "dims": ["t", "z", "y", "x"],
        },
        split={"train": 5, "validation": 0, "test": 3},
        model={"name": "resnet", "width": 4, "blocks": 1},
        training={"steps": 2},
    )
    run = api.train(config)
    results = api.evaluate(run.path)
    assert results.metrics["test_samples"] == 3
    with xr.open_dataset(run.path / "results.nc") as fields:
        assert fields["rho_truth"].dims == ("step", "y", "x")


def test_dates_stay_dates_in_a_prediction(job, tmp_path):
    times = np.datetime64("2020-01-01", "ns") + np.arange(10) * np.timedelta64(6, "h")
    data = xr.Dataset(
        {"u": (("time", "x"), np.random.default_rng(0).standard_normal((10, 8)))},
        coords={"time": times},
    )
    path = write_fields(data, tmp_path / "dates.nc")
    config = job(
        {"path": str(path), "inputs": ["u"], "outputs": ["u"]},
        split={"train": 6, "validation": 0, "test": 4},
        rollout={"predict": 2},
        training={"steps": 1},
    )
    run = api.train(config)
    with xr.open_dataset(api.predict(run.path, path, tmp_path / "out.nc")) as found:
        assert found["time"].values[0] == times[-1] + np.timedelta64(6, "h")
        assert found.sizes["time"] == 2


def test_the_planned_loader_gives_what_xarray_reads(wave_job, job, tmp_path, wave):
    _, config = api.load(wave_job(rollout={"steps": 2}))
    prepared = prepare(config)
    batch = next(iter(prepared.loaders["validation"]))
    with xr.open_dataset(config.data.path) as file:
        values = file["u"].values
    expected = np.stack([values[i : i + 3] for i in range(18, 22)])
    assert np.array_equal(batch["u"].numpy(), expected)
    prepared.opened.data.dataset.close()


def test_zarr_is_read_as_well(job, tmp_path):
    path = tmp_path / "store.zarr"
    data = xr.Dataset({"u": (("time", "x"), np.random.default_rng(0).standard_normal((12, 8)))})
    data.to_zarr(path, zarr_format=2)
    _, config = api.load(
        job(
            {"path": str(path), "inputs": ["u"], "outputs": ["u"]},
            split={"train": 8, "validation": 4, "test": 0},
        )
    )
    prepared = prepare(config)
    batch = next(iter(prepared.loaders["validation"]))
    assert np.allclose(batch["u"].numpy()[0, 0], data["u"].values[8])
    prepared.opened.data.dataset.close()


def test_a_stopped_training_continues_to_the_same_weights(wave_job, interrupt):
    path = wave_job(
        symmetries={"shift": ["x"]},
        rollout={"steps": 2, "begin": 0.4, "noise": 0.1},
        training={"steps": 12, "optimizer": {"name": "muon", "lr": 1e-3}},
    )
    whole = api.train(path).path
    interrupt(path, 7)
    resumed = api.train(path, resume=True).path
    assert resumed != whole
    weights = [(p / "model" / "weights.safetensors").read_bytes() for p in (whole, resumed)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (["data.inputs=[nope]"], DataError, "did you mean|nope"),
        (["data.sample_dim=x_"], DataError, "no dim 'x_'"),
        (["split.train=2", "rollout.steps=6"], DataError, "no complete window"),
        (["split.train=30"], ConfigError, "more than the series"),
        (["data.units={u: kg}"], DataError, "'kg' is expected"),
    ],
)
def test_what_does_not_fit_the_file_is_told(wave_job, overrides, error, message):
    path = wave_job()
    with pytest.raises(error, match=message):
        api.check(path, overrides)


@pytest.mark.parametrize(
    "training",
    [{"strategy": "sharded"}, {"strategy": "mesh", "mesh": {"expert": 2}}],
    ids=lambda settings: settings["strategy"],
)
def test_processes_that_wait_for_each_other_draw_no_steps(wave_job, training):
    rollout = {"pushforward": 2, "draw_pushforward": True}
    with pytest.raises(ConfigProblems, match="processes of strategy"):
        load_config(EmulationConfig, wave_job(rollout=rollout, training=training))
    config = load_config(EmulationConfig, wave_job(rollout=rollout, training={"strategy": "ddp"}))
    assert config.rollout.draw_pushforward


def test_a_grid_that_cannot_be_compared_or_another_step_is_refused(trained, tmp_path):
    other = xr.Dataset(
        {"u": (("time", "x"), np.zeros((5, 16), "f4"))}, coords={"time": 0.5 * np.arange(5)}
    )
    with pytest.raises(DataError, match=r"x: 16 cells for 32.*without coordinates"):
        api.predict(trained, write_fields(other, tmp_path / "grid.nc"), tmp_path / "out.nc")
    slow = xr.Dataset(
        {"u": (("time", "x"), np.zeros((5, 32), "f4"))},
        coords={"time": 9.0 * np.arange(5), "x": np.arange(32) / 32},
    )
    with pytest.raises(DataError, match="a step of 9"):
        api.evaluate(trained, write_fields(slow, tmp_path / "slow.nc"))


def test_nan_in_the_training_part_is_told_with_its_samples(job, tmp_path):
    values = np.zeros((10, 8), "f4")
    values[3, 2] = np.nan
    path = write_fields(xr.Dataset({"u": (("time", "x"), values)}), tmp_path / "nan.nc")
    with pytest.raises(DataError, match=r"NaN or Inf.*samples 3"):
        api.check(
            job(
                {"path": str(path), "inputs": ["u"], "outputs": ["u"]},
                split={"train": 8, "validation": 2, "test": 0},
            )
        )


def test_an_error_of_nan_is_not_better():
    evaluation = Evaluation.__new__(Evaluation)
    evaluation.rollouts = {
        OWN: {"u": [0.1, math.nan, math.nan]},
        PERSISTENCE: {"u": [1.0, 2.0, 3.0]},
    }
    assert evaluation.steps_better("u", PERSISTENCE) == 1

"""One model for low resolutions of several spacings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr
from advected_waves import wave_fields
from prepared_crops import prepare
from stopped_training import train_until

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems, load_config
from scitoolkit.core.contracts import Progress
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.io.fields import write_fields
from scitoolkit.superresolution.baselines import interpolate
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.network import Header
from scitoolkit.superresolution.surrogate import SuperresolutionSurrogate

CROP = {"every": {"t": 2, "x": 2}, "coarser": [1, 2, 4]}
TRAINING = {"batch_size": 8, "steps": 120, "optimizer": {"name": "muon", "lr": 5e-3}}
NO_PDE = {"equations": {}, "weight": 0}


@pytest.fixture(scope="module")
def runs(job_file):
    """Return runs on three resolutions and on the finest alone."""
    crops = CROP, {**CROP, "coarser": [1]}
    return [api.run(job_file(crop=c, pde=NO_PDE, training=TRAINING)).path for c in crops]


def coarse(factor: int) -> xr.Dataset:
    return wave_fields(phase=0.37).isel(t=slice(None, None, factor), x=slice(None, None, factor))


def test_a_batch_of_another_resolution_has_its_nodes_and_values(job_file):
    prepared = prepare(load_config(SuperresolutionConfig, job_file(crop=CROP, pde=NO_PDE)))
    batch = next(iter(prepared.loaders["train"]))
    thin = prepared.task._thinned(batch, 4)
    assert torch.equal(thin["low"], batch["low"][:, :, ::4, ::4])
    for axis in range(2):
        assert torch.equal(thin[f"nodes_{axis}"], batch[f"nodes_{axis}"][:, ::4])
    assert thin["points"] is batch["points"]
    channels = prepared.model._coordinate_channels(
        thin["low"], [thin["nodes_0"].double(), thin["nodes_1"].double()]
    )
    assert [c.round(decimals=3).unique().tolist() for c in channels] == [[2.0], [2.0]]


def test_every_resolution_is_scored_and_better_than_without_its_training(runs):
    several, one = (api.evaluate(run).metrics for run in runs)
    surrogate = SuperresolutionSurrogate.load(runs[1] / "model")
    data = wave_fields(phase=0.37)
    points = np.stack(np.meshgrid(data["t"], data["x"], indexing="ij"), -1).reshape(-1, 2)
    truth = data["u"].transpose("t", "x").values.ravel()
    own = surrogate.coarse(coarse(4)).query(points)[0, :, 0]
    assert several["r2_u_coarser2"] > 1 - np.mean((own - truth) ** 2) / truth.var()
    assert several["r2_u_coarser2"] > several["r2_u_coarser2_multilinear"]
    linear = interpolate(coarse(8)["u"].values.T[None], (8, 8), (False, True), "linear")[0].ravel()
    expected = 1 - np.mean((linear - truth) ** 2) / truth.var()
    assert several["r2_u_coarser4_multilinear"] == pytest.approx(expected, abs=1e-4)
    assert not any("coarser" in name for name in one)


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_a_prediction_has_the_nodes_of_the_training(runs, tmp_path, caplog, factor):
    write_fields(coarse(2 * factor), tmp_path / "coarse.nc")
    api.predict(runs[0], tmp_path / "coarse.nc", tmp_path / "fine.nc")
    assert "apart" not in caplog.text
    truth = wave_fields(phase=0.37)
    with xr.open_dataset(tmp_path / "fine.nc", engine="h5netcdf") as fine:
        assert np.allclose(fine["x"], truth["x"])
        assert np.allclose(fine["t"], truth["t"][: fine.sizes["t"]])
        values = fine["u"].transpose("t", "x").values
    head = SuperresolutionSurrogate.load(runs[0] / "model").coarse(coarse(2 * factor))
    assert head.surrogate.header.factor == factor
    nodes = np.stack(np.meshgrid(truth["t"][: len(values)], truth["x"], indexing="ij"), -1)
    asked = head.query(nodes.reshape(-1, 2))[0, :, 0].reshape(values.shape)
    assert np.allclose(values, asked, atol=1e-5)


def test_a_stopped_training_continues_to_the_same_weights(job_file):
    path = job_file(crop=CROP, pde=NO_PDE, training={**TRAINING, "steps": 12})
    whole = api.train(path).path
    train_until(path, 7)
    resumed = api.train(path, resume=True).path
    assert resumed != whole
    first, second = (ModelFolder(p).load_weights() for p in (whole, resumed))
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("step", range(4))
def test_a_step_has_one_resolution_whatever_batches_and_closures(job_file, step):
    prepared = prepare(load_config(SuperresolutionConfig, job_file(crop=CROP, pde=NO_PDE)))
    batch, seen = next(iter(prepared.loaders["train"])), []
    prepared.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[2:]))
    prepared.task.at(Progress(step=step, total_steps=4, epoch=0))
    for _ in range(2):
        prepared.task.loss(batch)
    factor = CROP["coarser"][step % 3]
    assert seen == [batch["low"][:, :, ::factor, ::factor].shape[2:]] * 2


def test_the_header_of_another_factor_and_back(runs):
    head = SuperresolutionSurrogate.load(runs[0] / "model").header
    thin = Header.from_json(head.thinned(4).to_json())
    assert thin.layout.every == (8, 8)
    assert thin.reference == head.reference == head.spacing
    assert thin.thinned(1) == head


@pytest.mark.parametrize(
    ("crop", "message"),
    [
        ({"coarser": [2, 4]}, "ascend from 1"),
        ({"coarser": [1, 2, 2]}, "ascend from 1"),
        ({"every": {"t": 1, "x": 1}}, "no dim of every"),
    ],
)
def test_factors_that_are_none_are_refused(job_file, crop, message):
    with pytest.raises((ConfigProblems, ConfigError), match=message):
        load_config(SuperresolutionConfig, job_file(crop={**CROP, **crop}))


def test_factors_that_do_not_divide_a_crop_are_refused(job_file):
    with pytest.raises(ConfigError, match="every 6-th of 9 nodes along t does not end at the last"):
        api.check(job_file(crop={**CROP, "coarser": [1, 3]}))


def test_weights_of_other_factors_are_no_start(job_file, runs):
    with pytest.raises(ConfigError, match=r"crop\.coarser"):
        api.check(job_file(start={"path": str(runs[1])}, crop=CROP, pde=NO_PDE))

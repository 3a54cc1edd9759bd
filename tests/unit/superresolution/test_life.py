"""What super-resolution shares with other surrogates: ensembles, starts from weights, resuming."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
import xarray as xr
from advected_waves import wave_fields
from prepared_crops import prepare

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.io.fields import write_fields
from scitoolkit.superresolution import SuperresolutionConfig, SuperresolutionSurrogate
from scitoolkit.superresolution.traced import traced

POINTS = np.random.default_rng(0).uniform([0, 0], [1, 2], (40, 2))


def low() -> xr.Dataset:
    return wave_fields(phase=0.37).isel(t=slice(None, None, 4), x=slice(None, None, 4))


def values(run) -> np.ndarray:
    surrogate = SuperresolutionSurrogate.load(run / "model")
    return surrogate.coarse(low()).query(POINTS)[0]


@pytest.fixture(scope="module")
def ensemble(job_file):
    mirror = {"mirror": {"x": ["u"]}}
    return api.train(job_file(members=3, model={"average": True}, crop={"symmetries": mirror})).path


def test_an_ensemble_answers_with_the_mean_of_its_members(ensemble):
    whole = SuperresolutionSurrogate.load(ensemble / "model")
    alone = [SuperresolutionSurrogate(member) for member in whole.members]
    own = [one.coarse(low()).query(POINTS)[0] for one in alone]
    assert len(own) == 3
    assert np.abs(own[0] - own[1]).max() > 1e-3  # other seeds
    assert np.allclose(values(ensemble), np.mean(own, 0), atol=1e-6)
    assert "r2_u" in api.evaluate(ensemble).metrics


def test_the_first_member_begins_as_a_model_alone(job_file):
    one, two = (
        prepare(load_config(SuperresolutionConfig, job_file(members=n))).model for n in (1, 2)
    )
    first, alone = two.members[0].state_dict(), one.state_dict()
    assert all(torch.equal(first[name], alone[name]) for name in alone)


def decoded(encode, decode):
    """Return the number of latent images, and the values at the points of the example."""
    coarse, *nodes = (torch.as_tensor(a, dtype=torch.float32) for a in encode.examples)
    with torch.no_grad():
        latent = encode.module(coarse[:1], *nodes)
        points = torch.as_tensor(decode.examples[-1], dtype=torch.float32)
        return latent.shape[1], decode.module(latent[0], *nodes, points).numpy()


def test_an_ensemble_is_exported_as_its_two_functions(ensemble):
    images, out = decoded(*job_for_task("superres").traced(ensemble))
    assert images == 6  # three members, each with the fields and their reflection
    config = ModelFolder(ensemble).config(SuperresolutionConfig)
    members = SuperresolutionSurrogate.load(ensemble / "model").members
    own = [decoded(*traced(config, member))[1] for member in members]
    assert np.allclose(out, np.mean(own, 0), atol=1e-6)
    assert np.abs(own[0] - own[1]).max() > 1e-3


def test_a_run_starts_from_trained_weights_and_freezes_some(job_file, trained):
    start = {"path": str(trained), "frozen": ["encoder.*"]}
    optimizer = {"name": "sgd", "lr": 0.1}
    path = job_file(start=start, training={"batch_size": 8, "steps": 2, "optimizer": optimizer})
    begun = SuperresolutionSurrogate(prepare(load_config(SuperresolutionConfig, path)).model)
    assert np.array_equal(begun.coarse(low()).query(POINTS)[0], values(trained))
    after = api.train(path).path
    before, now = (
        SuperresolutionSurrogate.load(r / "model").model.state_dict() for r in (trained, after)
    )
    changed = {name for name in now if not torch.equal(now[name], before[name])}
    assert changed
    assert all(name.startswith("decoder") for name in changed - {"steps_seen"})


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"members": 2}, "members"),
        ({"model": {"blend": "smooth"}}, "model.blend"),
        ({"crop": {"every": {"t": 2, "x": 4}}}, "crop.every"),
    ],
)
def test_weights_of_another_model_are_refused(job_file, trained, sections, key):
    with pytest.raises(ConfigError, match=key):
        api.check(job_file(start={"path": str(trained)}, **sections))


def test_weights_of_other_units_are_refused(job_file, trained, tmp_path):
    fields = wave_fields()
    fields["u"].attrs["units"] = "K"
    path = write_fields(fields, tmp_path / "kelvin.nc")
    data = {"path": str(path), "test": str(path)}
    with pytest.raises(DataError, match="unit"):
        api.check(job_file(start={"path": str(trained)}, data=data))


def former(run, folder):
    """Return a copy of a run as it was stored before its header was in the file of the weights."""
    older = shutil.copytree(run, folder)
    model = ModelFolder(older)
    measured, weights = model.measured(), model.load_weights()
    head = measured["header"] | {"mean": [0.0], "std": [1.0]}
    text = json.dumps({"header": head, "model": measured["model"]})
    (model.path / "model.json").write_text(text)
    model.save_weights(weights)
    record = model.record()
    record["parts"] = record.pop("samples")
    (model.path / "fit.json").write_text(json.dumps(record))
    return older


def test_a_run_of_the_former_form_still_opens(job_file, tmp_path):
    for number in range(4):
        write_fields(wave_fields(phase=0.2 * number), tmp_path / f"sim{number}.nc")
    data = {"path": str(tmp_path / "sim*.nc"), "test": None}
    run = api.train(job_file(data=data, split={"train": 1, "test": 3, "validation": 0})).path
    older = former(run, tmp_path / "older")
    wanted, out = (api.evaluate(r) for r in (run, older))
    assert out.metrics == wanted.metrics
    assert len(next(t for t in out.tables if t.title == "Every simulation").rows) == 3
    assert np.array_equal(values(older), values(run))


def test_a_resumed_run_refuses_files_that_changed(job_file, tmp_path):
    path = write_fields(wave_fields(), tmp_path / "own.nc")
    job = job_file(data={"path": str(path)})
    run = api.train(job)
    changed = wave_fields()
    changed["u"] = changed["u"] * 2
    write_fields(changed, path)
    with pytest.raises(DataError, match="own"):
        api.train(job, resume=True, run_dir=run.path)


def test_a_trial_is_scored_on_the_validation_part(job_file, tmp_path):
    for number in range(3):
        write_fields(wave_fields(phase=0.2 * number), tmp_path / f"sim{number}.nc")
    data = {"path": str(tmp_path / "sim*.nc"), "test": None}
    split = {"train": 1, "validation": 1, "test": 1}
    run = api.train(job_file(data=data, split=split))
    job, config = job_for_task("superres"), ModelFolder(run.path).config
    scores = job.search_trial(config(job.config_class), run)
    record = ModelFolder(run.path).record()["samples"]
    path = tmp_path / f"sim{record['validation'][0]}.nc"
    wanted = api.evaluate(run.path, path).metrics
    assert scores["r2_u"] == pytest.approx(wanted["r2_u"], abs=1e-6)

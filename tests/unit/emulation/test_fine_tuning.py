"""Emulators that start from trained ones: equal at first, with more variables or on other grids."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import xarray as xr

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.stages import prepare
from scitoolkit.io.fields import write_fields

MODELS = (
    {"name": "unet", "widths": [8, 12]},
    {"name": "unet", "widths": [8, 12], "patch": 2},
    {"name": "resnet", "width": 8, "blocks": 2},
    {"name": "fno", "width": 8, "layers": 2, "modes": [5]},
    {"name": "factorised_fno", "width": 8, "layers": 2, "modes": [5]},
)


def write(path, seed, *, speed=3.0, cells=32, frames=20, name="u", unit="m/s", step=0.5, rates=()):
    """Write a moving wave `u`, its square `w` and, if there are `rates`, the number `rate`."""
    x = np.arange(cells) / cells
    phase = np.random.default_rng(seed).uniform(0, 1)
    moved = x - speed * np.arange(frames)[:, None] / 32
    u = np.cos(2 * np.pi * (moved + phase)) + 0.3 * np.sin(4 * np.pi * moved)
    fields = {
        name: (("time", "x"), u.astype("f4"), {"units": unit}),
        "w": (("time", "x"), (u**2).astype("f4"), {"units": "1"}),
    }
    data = xr.Dataset(fields, {"time": step * np.arange(frames), "x": x})
    return write_fields(data.assign_attrs(rate=speed), path)


@pytest.fixture
def campaign(tmp_path):
    """Write three files; return their folder."""

    def make(folder, first, **settings):
        (tmp_path / folder).mkdir()
        for number in range(3):
            write(tmp_path / folder / f"{number}.nc", first + number, **settings)
        return str(tmp_path / folder)

    return make


@pytest.fixture
def plan(tmp_path, job, campaign):
    """Write the configuration of a job on a new campaign, or on `path`."""

    def make(path=None, variables=("u",), **sections):
        path = campaign("old", 0) if path is None else path
        data = {"path": path, "inputs": [*variables], "outputs": [*variables]}
        data |= sections.pop("data", {})
        split = {"by": "simulation", "train": 1, "validation": 1, "test": 1}
        settings = {"boundary": {"x": "circular"}, "split": split, **sections}
        return job(data, training={"steps": 4, "log_every": 4}, **settings)

    return make


def started(path, run, **start):
    given = [f"start={json.dumps({'path': str(run), **start})}"]
    return load_config(EmulationConfig, path, given)


def loaded(run):
    return surrogate.load(run / "model", load_config(EmulationConfig, run / "config.yaml"))


def outputs(emulator, shape):
    """Return {output: values} of random inputs that depend on their names alone."""
    inputs = []
    for variable in emulator.layout.inputs:
        generator = torch.Generator().manual_seed(sum(map(ord, variable.name)))
        inputs.append(torch.randn((2, *(shape if variable.is_field else ())), generator=generator))
    with torch.no_grad():
        answers = emulator.eval()(*inputs)
    return {v.name: a for v, a in zip(emulator.layout.outputs, answers, strict=True)}


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{m['name']}{m.get('patch', '')}")
@pytest.mark.parametrize("variables", [("u",), ("u", "w"), ("w", "u")])
def test_training_starts_at_the_trained_emulator(plan, campaign, model, variables):
    run = api.train(plan(model=model)).path
    new = campaign("new", 10, speed=1.0)
    begun = prepare(started(plan(new, variables, model=model), run, new_variables="add"))
    before, now = outputs(loaded(run), (32,)), outputs(begun.model, (32,))
    torch.testing.assert_close(now["u"], before["u"], rtol=1e-5, atol=1e-5)
    # The further variable is learned from the first step on.
    begun.task.loss(next(iter(begun.loaders["train"])))[0].backward()
    for parameter in begun.model.parameters():
        assert parameter.grad is not None
        assert bool(torch.isfinite(parameter.grad).all())


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{m['name']}{m.get('patch', '')}")
def test_random_weights_of_new_inputs_are_the_only_difference_from_zero_ones(plan, campaign, model):
    run = api.train(plan(model=model)).path
    path = plan(campaign("new", 10, speed=1.0), ("w", "u"), model=model)
    zero, random = (
        dict(prepare(started(path, run, new_variables=way)).model.named_parameters())
        for way in ("add", "random")
    )
    changed = [name for name in zero if not torch.equal(zero[name], random[name])]
    assert changed
    for name in changed:
        differs = zero[name] != random[name]
        assert (zero[name][differs] == 0).all()


@pytest.mark.parametrize("conditioning", ["channels", "film"])
def test_a_further_parameter_and_transport(plan, campaign, conditioning):
    more = {"transport": {"x": 4}, "conditioning": conditioning}
    rate = {"data": {"parameters": ["rate"]}}
    run = api.train(plan(**more, **rate)).path
    begun = prepare(
        started(plan(campaign("new", 10), ("w", "u"), **more, **rate), run, new_variables="add")
    )
    before, now = outputs(loaded(run), (32,)), outputs(begun.model, (32,))
    torch.testing.assert_close(now["u"], before["u"], rtol=1e-4, atol=1e-5)


def test_a_finer_grid_starts_with_the_weights_and_is_trained_loaded_and_scored(plan, campaign):
    run = api.train(plan()).path
    path = plan(campaign("fine", 10, cells=48))
    config = started(path, run)
    begun = prepare(config)
    for name, tensor in loaded(run).named_parameters():
        assert torch.equal(begun.model.get_parameter(name), tensor), name
    assert begun.model.layout.grid == {"x": 48}
    tuned = api.train(path, [f"start.path={run}"]).path
    assert api.evaluate(tuned).metrics["one_step_over_persistence_u"] < 1
    assert loaded(tuned).layout.grid == {"x": 48}


def test_frozen_parameters_stay_and_others_move(plan, campaign):
    run = api.train(plan()).path
    path, start = plan(campaign("new", 10)), {"path": str(run), "frozen": ["*.encoders.*"]}
    tuned = loaded(api.train(path, [f"start={json.dumps(start)}"]).path)
    moved = {}
    for name, tensor in loaded(run).named_parameters():
        moved[name] = not torch.equal(tuned.get_parameter(name), tensor)
    assert not any(changed for name, changed in moved.items() if ".encoders." in name)
    assert all(changed for name, changed in moved.items() if ".head." in name)
    with pytest.raises(ConfigError, match=r"start\.frozen: no parameter is called 'encoder\.\*'"):
        prepare(started(path, run, frozen=["encoder.*"]))


def test_replayed_simulations_are_trained_on_and_never_tested(plan, campaign, tmp_path):
    old = plan()
    run = api.train(old).path
    new = campaign("new", 10, speed=1.0)
    path = plan(new)
    alone = prepare(started(path, run)).opened
    both = prepare(started(path, run, replay=[str(tmp_path / "old")])).opened
    for part in ("validation", "test"):
        assert both.parts[part] == alone.parts[part]
    assert both.parts["train"] == [*alone.parts["train"], *both.data.blocks[3:]]
    stored = xr.load_dataset(tmp_path / "old/2.nc", engine="h5netcdf").u.values
    np.testing.assert_array_equal(both.data.frame(both.data.blocks[5].start + 7)["u"], stored[7])
    one = prepare(started(path, run, replay=[str(tmp_path / "old")], replay_simulations=1)).opened
    assert len(one.parts["train"]) == 2
    # Rows of the record are those of the new files in every later use.
    start = {"path": str(run), "replay": [str(tmp_path / "old")]}
    tuned = api.train(path, [f"start={json.dumps(start)}"]).path
    assert np.isfinite(api.evaluate(tuned).metrics["rmse_u"])
    with pytest.raises(DataError, match=r"replayed|given twice|copies"):
        prepare(started(path, run, replay=[str(tmp_path / "new")]))


@pytest.mark.parametrize(
    ("changed", "settings", "told"),
    [
        ({"unit": "km/h"}, {}, "unit"),
        ({"step": 0.25}, {}, "step"),
        ({"name": "v"}, {"variables": ("v",)}, "no variable u"),
        ({}, {"variables": ("u", "w")}, "do not know w"),
        ({}, {"model": {"name": "unet", "widths": [8, 16]}}, "model.widths"),
        ({}, {"model": {"name": "resnet", "width": 8, "blocks": 2}}, "model.name"),
        ({}, {"residual": False}, "residual"),
        ({}, {"data": {"lead": 2}}, "data.lead"),
        ({}, {"data": {"history": 2}}, "data.history"),
        ({}, {"uncertainty": {"members": 2, "steps": 2}}, "uncertainty.members"),
    ],
)
def test_what_would_mean_something_else_is_refused(plan, campaign, changed, settings, told):
    run = api.train(plan()).path
    path = plan(campaign("new", 10, **changed), **settings)
    with pytest.raises((ConfigError, DataError), match=told):
        prepare(started(path, run))

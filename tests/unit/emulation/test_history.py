"""A state given at several times: windows, rollouts, predictions and mirrors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems, load_config
from scitoolkit.core.errors import DataError
from scitoolkit.emulation.config import EmulationConfig, SymmetryConfig
from scitoolkit.emulation.rollout import rollout
from scitoolkit.emulation.stages import prepare
from scitoolkit.emulation.symmetries import Symmetries
from scitoolkit.io.fields import write_fields

ROWS, CELLS, OMEGA = 20, 8, 0.7


def write(path, seed, rows=ROWS):
    """An oscillation about 0: the next state follows from two, and from one it does not."""
    rng, t = np.random.default_rng(seed), np.arange(rows)[:, None]
    u = rng.uniform(0.5, 1, CELLS) * np.cos(OMEGA * t + rng.uniform(0, 6, CELLS))
    data = {"u": (("time", "x"), u.astype("f4")), "f": (("time", "x"), 0 * u.astype("f4") + t)}
    return write_fields(xr.Dataset(data), path)


@pytest.fixture
def plan(tmp_path, job):
    for i in range(5):
        write(tmp_path / f"run{i}.nc", i)

    def make(history=2, lead=1, **sections):
        data = {
            "path": str(tmp_path / "run*.nc"),
            "inputs": ["u", "f"],
            "outputs": ["u"],
            "history": history,
            "lead": lead,
        }
        split = {"train": 3, "validation": 1, "test": 1}
        model = {"name": "resnet", "width": 16, "blocks": 1, "kernel": 3}
        return job(data, **{"split": split, "model": model, **sections})

    return make


def test_windows_hold_the_state_at_earlier_times(plan):
    prepared = prepare(load_config(EmulationConfig, plan(3, 2, rollout={"steps": 2})))
    assert [v.name for v in prepared.model.layout.inputs] == ["u", "f", "u@-1", "u@-2"]
    seen = 0
    for batch in prepared.loaders["train"]:
        for i, first in enumerate(batch["f"][:, 0, 0].int().tolist()):
            assert batch["f"][i, :, 0].tolist() == [first, first + 2, first + 4]
            assert first >= 4
            for age in (1, 2):
                older, present = batch[f"u@-{age}"][i], batch["u"][i]
                assert torch.equal(older[1:], present[:-1] if age == 1 else batch["u@-1"][i][:-1])
        seen += len(batch["u"])
    assert seen == 3 * (ROWS - 8)


def test_a_rollout_shifts_what_it_made(plan):
    emulator = prepare(load_config(EmulationConfig, plan(3))).model
    rng, names = np.random.default_rng(0), ["u", "f", "u@-1", "u@-2"]
    given = {n: rng.standard_normal(CELLS).astype("f4") for n in names}
    seen = []
    emulator.forward, original = lambda *x: seen.append(x) or original(*x), emulator.forward
    made = [frames["u"] for frames in rollout(emulator, given, 3)]
    last = [x[0].numpy() for x in seen[2]]
    for found, wanted in zip(last, [made[1], given["f"], made[0], given["u"]], strict=True):
        assert np.array_equal(found, wanted)


def test_two_times_tell_what_one_does_not(plan, tmp_path):
    errors = {}
    training = {"steps": 300, "optimizer": {"name": "adam", "lr": 0.01}}
    for history in (1, 2):
        run = api.train(plan(history, training=training)).path
        errors[history] = api.evaluate(run).metrics["vrmse_u"]
    assert errors[2] < 0.25 * errors[1]
    api.predict(run, write(tmp_path / "new.nc", 9), tmp_path / "next.nc", 1)
    truth = xr.open_dataset(write(tmp_path / "longer.nc", 9, ROWS + 1))["u"][-1]
    with xr.open_dataset(tmp_path / "next.nc") as found:
        assert float(abs(found["u"][0] - truth).max()) < 0.3
    with pytest.raises(DataError, match=r"more than 1: data.history is 2"):
        api.predict(run, write(tmp_path / "one.nc", 9, 1), tmp_path / "next.nc")


def test_an_earlier_value_is_mirrored_like_the_present_one(plan):
    layout = prepare(load_config(EmulationConfig, plan())).model.layout
    symmetries = Symmetries(SymmetryConfig(mirror={"x": ["u"]}), layout)
    sample = {n: torch.arange(8.0).view(1, 1, 8) for n in ("u", "f", "u@-1")}
    found = symmetries.mirror(sample, "x")
    assert torch.equal(found["u"], found["u@-1"])
    assert torch.equal(found["f"], -found["u"])


def test_a_history_needs_a_state(plan):
    with pytest.raises(ConfigProblems, match="history needs lead"):
        load_config(EmulationConfig, plan(2, 0))

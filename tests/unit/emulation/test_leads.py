"""One emulator of several leads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, ScitoolkitError
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.job import EmulationJob
from scitoolkit.emulation.leads import Leads, offsets_of
from scitoolkit.emulation.stages import prepare
from scitoolkit.io.fields import write_fields

RATE, CELLS, ROWS = 0.1, 16, 24


@pytest.fixture
def drift(tmp_path, job):
    """A job whose state grows by RATE in each sample, at its own level in each simulation."""
    rng = np.random.default_rng(0)
    for i in range(4):
        u = rng.standard_normal(CELLS) + RATE * np.arange(ROWS)[:, None]
        data = xr.Dataset({"u": (("time", "x"), u.astype("f4"))}, {"time": 0.5 * np.arange(ROWS)})
        write_fields(data, tmp_path / f"run{i}.nc")

    def make(leads=(1, 2, 4), lead=2, **sections):
        data = {
            "path": str(tmp_path / "run*.nc"),
            "inputs": ["u"],
            "outputs": ["u"],
            "leads": list(leads),
            "lead": lead,
            **sections.pop("data", {}),
        }
        training = {"epochs": 25, "batch_size": 8, "optimizer": {"name": "adam", "lr": 0.02}}
        return job(
            data,
            split={"train": 3, "validation": 0, "test": 1},
            model={"name": "unet", "widths": [4]},
            conditioning="film",
            **{"training": training, **sections},
        )

    return make


def test_one_emulator_is_right_at_every_lead_and_scored_at_each(drift, tmp_path, caplog):
    run = api.train(drift()).path
    scores = api.evaluate(run).metrics
    # At one size of change for all leads the ratio is at least .5 at one of them.
    assert max(scores[f"lead{n}_over_persistence_u"] for n in (1, 2, 4)) < 0.2
    assert "lead4_over_repeated_steps_u" in scores
    assert "lead2_over_repeated_steps_u" not in scores
    (function,) = EmulationJob().traced(run)
    assert [spec.name for spec in function.inputs] == ["u", "lead"]
    assert [float(function.inputs[1].low), float(function.inputs[1].high)] == [1, 4]
    source, output = tmp_path / "run0.nc", tmp_path / "out.nc"
    for lead in (None, 4):
        api.predict(run, source, output, steps=2, lead=lead)
        with xr.open_dataset(source) as given, xr.open_dataset(output) as found:
            samples = lead or 2
            assert np.allclose(np.diff(found["time"]), 0.5 * samples)
            change = float((found["u"][0] - given["u"][-1]).mean())
            assert change == pytest.approx(RATE * samples, rel=0.2)
    api.predict(run, source, output, steps=0, lead=1)
    with xr.open_dataset(source) as given, xr.open_dataset(output) as found:
        assert np.allclose(found["time"], given["time"] + 0.5)
    assert "interpolated" not in caplog.text
    api.predict(run, source, output, steps=1, lead=3)
    assert "3 is interpolated" in caplog.text
    with pytest.raises(ConfigError, match="a lead of 8 samples"):
        api.predict(run, source, output, lead=8)


def test_batches_hold_all_leads_and_losses_count_them_alike(drift):
    prepared = prepare(load_config(EmulationConfig, drift(rollout={"steps": 2})))
    task, batch = prepared.task, next(iter(prepared.loaders["train"]))
    assert offsets_of([1, 2, 4], 2) == [0, 1, 2, 4, 8]
    for lead in (1, 2, 4):
        assert task.leads.growth[lead]["u"] == pytest.approx(lead / 2, rel=1e-4)
        chosen = task.leads.of(batch, lead)
        moved = (chosen["u"] - chosen["u"][:, :1]).mean(2)
        expected = RATE * lead * torch.arange(3.0).expand_as(moved)
        assert torch.allclose(moved, expected, atol=1e-5)
        assert chosen["lead"].tolist() == [[float(lead)] * 3] * len(moved)
    # Without weights it returns its input: every lead's first step has an error of 1.
    for parameter in prepared.model.parameters():
        torch.nn.init.zeros_(parameter)
    single = {"u": batch["u"][:, [0, 1, 2, 3]]}
    with torch.no_grad():
        found = task.metrics(single)
    for lead in (1, 2, 4):
        assert float(found[f"loss_lead{lead}"]) == pytest.approx(1, rel=1e-4)
    assert float(found["loss"]) == pytest.approx(1, rel=1e-4)


def test_draws_follow_the_generator_and_meet_every_lead():
    leads = Leads((1, 3), {})
    torch.manual_seed(0)
    first = [leads.draw() for _ in range(20)]
    torch.manual_seed(0)
    assert [leads.draw() for _ in range(20)] == first
    assert set(first) == {1, 3}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"leads": [2, 4], "lead": 1}, "leads that include lead 1"),
        ({"leads": [1], "lead": 1}, "two or more"),
        ({"leads": [1, 1, 2]}, "distinct leads"),
        ({"leads": [1, 2], "history": 2}, "history: 1"),
        ({"leads": [1, 2], "inputs": ["u", "lead"]}, "must not be a variable"),
    ],
)
def test_leads_that_cannot_be_are_refused(section, message):
    data = {"path": "none.nc", "inputs": ["u"], "outputs": ["u"], **section}
    with pytest.raises((ScitoolkitError, ValueError), match=message):
        EmulationConfig.model_validate({"data": data})


def test_a_lead_for_an_emulator_of_one_is_refused(trained, wave, tmp_path):
    with pytest.raises(ConfigError, match="emulator of several leads"):
        api.predict(trained, wave(5, name="five.nc"), tmp_path / "out.nc", lead=3)


def test_a_guard_that_knows_the_time_of_a_step_suits_one_lead(drift):
    guard = {
        "name": "plane_balance",
        "dim": "x",
        "carrier": "u",
        "diffusivity": {"u": 1e-3},
        "step": 1.0,
    }
    with pytest.raises(ConfigError, match=r"for a single lead, but data.leads has 3 leads"):
        prepare(load_config(EmulationConfig, drift(guards=[guard])))

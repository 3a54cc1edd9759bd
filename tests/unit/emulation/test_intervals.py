"""Ensembles of emulators and intervals of their rollouts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems, load_config
from scitoolkit.core.errors import CheckpointError, ConfigError
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig, UncertaintyConfig
from scitoolkit.emulation.ensemble import Ensemble
from scitoolkit.emulation.intervals import Intervals, Lead, Pairs, _lead, score
from scitoolkit.emulation.rollout import rollout, rollout_members
from scitoolkit.io.fields import write_fields

ROWS, CELLS, STEPS = 12, 8, 4


@pytest.fixture
def noisy_job(tmp_path, job):
    """24 simulations of a decay with independent noise in each step."""
    rng = np.random.default_rng(0)
    for i in range(24):
        u = [rng.standard_normal(CELLS)]
        for _ in range(ROWS - 1):
            u.append(0.9 * u[-1] + 0.2 * rng.standard_normal(CELLS))
        data = {"u": (("time", "x"), np.array(u, "f4"), {"units": "m/s"})}
        write_fields(xr.Dataset(data), tmp_path / f"run{i:02d}.nc")

    def make(members=2, **sections):
        return job(
            {"path": str(tmp_path / "run*.nc"), "inputs": ["u"], "outputs": ["u"]},
            split={"train": 8, "validation": 10, "test": 6},
            model={"name": "unet", "widths": [4]},
            uncertainty={"members": members, "steps": STEPS, "starts": 4},
            **sections,
        )

    return make


@pytest.fixture
def noisy_run(noisy_job):
    return api.train(noisy_job()).path


def test_intervals_hold_their_share_of_unseen_trajectories(noisy_run, tmp_path):
    scores = api.evaluate(noisy_run).metrics
    assert 0.83 < scores["coverage_min"] <= scores["coverage_max"] < 0.96
    assert scores["crps_over_mae_max"] < 0.8  # of a normal distribution: 0.71
    api.predict(noisy_run, tmp_path / "run23.nc", tmp_path / "next.nc", steps=STEPS + 2)
    with xr.open_dataset(tmp_path / "next.nc") as found:
        known = found.isel(time=slice(STEPS))
        assert bool((known["u_low"] < known["u"]).all() & (known["u"] < known["u_high"]).all())
        assert bool(found["u_low"].isel(time=slice(STEPS, None)).isnull().all())
        assert found["u_high"].attrs["units"] == "m/s"
        width = (known["u_high"] - known["u_low"]).mean("x").values
        assert (np.diff(width) > 0).all()


def test_members_differ_and_resume_bit_for_bit(noisy_job, interrupt):
    path = noisy_job(training={"steps": 12})
    whole = api.train(path).path
    ensemble = surrogate.load(whole / "model", load_config(EmulationConfig, path))
    assert isinstance(ensemble, Ensemble)
    first, second = (dict(m.named_parameters()) for m in ensemble.members)
    assert any(not torch.equal(first[n], second[n]) for n in first)
    interrupt(path, 7)
    resumed = api.train(path, resume=True).path
    for name in ("weights.safetensors", "intervals.json"):
        assert (resumed / "model" / name).read_bytes() == (whole / "model" / name).read_bytes()


def test_a_rollout_is_the_mean_of_the_members(noisy_run):
    config = load_config(EmulationConfig, noisy_run / "config.yaml")
    ensemble = surrogate.load(noisy_run / "model", config)
    first = {"u": np.ones(CELLS, "f4")}
    alone = [list(rollout(member, first, 3)) for member in ensemble.members]
    together = list(rollout_members(ensemble, first, 3))
    mean = list(rollout(ensemble, first, 3))
    for step in range(3):
        values = [alone[k][step]["u"] for k in range(2)]
        assert all(np.array_equal(together[step][k]["u"], values[k]) for k in range(2))
        assert np.allclose(mean[step]["u"], np.mean(values, axis=0))


def test_spread_widens_an_interval_where_it_tells_the_error():
    rng = np.random.default_rng(0)
    spread = rng.uniform(0.1, 2.0, 20_000)
    pairs = Pairs(spread * rng.standard_normal(20_000), np.zeros(20_000), spread)
    lead = _lead(pairs, UncertaintyConfig(members=4))
    assert lead.slope == pytest.approx(1, rel=0.05)
    assert lead.floor < 0.02
    assert lead.high == pytest.approx(1.645, rel=0.05)
    constant = Pairs(rng.standard_normal(20_000), np.zeros(20_000), spread)
    assert _lead(constant, UncertaintyConfig(members=4)).slope < 0.05
    intervals = Intervals(0.9, 30, {"u": [lead]})
    narrow = Pairs(pairs.truth[:5000], pairs.mean[:5000], spread[:5000])
    found = score(intervals, {"u": [narrow]})["u"]
    assert found.coverage[0] == pytest.approx(0.9, abs=0.02)
    assert found.crps[0] / found.mae[0] == pytest.approx(0.71, abs=0.03)


def test_what_cannot_be_calibrated_is_refused(noisy_job, noisy_run, tmp_path):
    with pytest.raises(ConfigProblems, match=r"needs split.validation"):
        load_config(EmulationConfig, noisy_job(), ["split.validation=0"])
    with pytest.raises(ConfigError, match="an ensemble of 2"):
        api.export(noisy_run, tmp_path / "model.pt2")
    (noisy_run / "model" / "intervals.json").write_text('{"coverage": 0.9}')
    with pytest.raises(CheckpointError, match="intervals cannot be read"):
        api.evaluate(noisy_run)


def test_a_lead_is_saved_exactly(tmp_path):
    saved = Intervals(0.8, 3, {"u": [Lead(0.1, 0.2, -1.3, 1.4, [0.0, 1 / 3])]})
    saved.save(tmp_path)
    assert Intervals.load(tmp_path) == saved

"""Probabilistic emulators: noise as an input, trained by the fair CRPS."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems, load_config
from scitoolkit.core.contracts import Progress
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.ensemble import NoiseEnsemble, with_draws
from scitoolkit.emulation.intervals import Pairs, _drawn
from scitoolkit.emulation.job import EmulationJob
from scitoolkit.emulation.models.config import UNetConfig
from scitoolkit.emulation.noise import fair_crps, noise_of
from scitoolkit.emulation.rollout import Rollout, rollout_members, step_once
from scitoolkit.emulation.stages import prepare
from scitoolkit.io.fields import write_fields
from scitoolkit.io.loader.cursor import tensors

ROWS, CELLS, STEPS, SPREAD = 24, 8, 3, 0.2


@pytest.fixture
def random_job(tmp_path, job):
    """24 simulations of a decay with one independent random number in each step."""
    rng = np.random.default_rng(0)
    for i in range(24):
        u = [rng.standard_normal(CELLS)]
        for _ in range(ROWS - 1):
            u.append(0.9 * u[-1] + SPREAD * rng.standard_normal())
        data = {"u": (("time", "x"), np.array(u, "f4"), {"units": "m/s"})}
        write_fields(xr.Dataset(data), tmp_path / f"run{i:02d}.nc")

    def make(uncertainty=None, **sections):
        own = {"members": 19, "noise": 2, "steps": STEPS, "starts": 4, **(uncertainty or {})}
        return job(
            {"path": str(tmp_path / "run*.nc"), "inputs": ["u"], "outputs": ["u"]},
            **{
                "split": {"train": 14, "validation": 6, "test": 4},
                "boundary": {"x": "circular"},
                "uncertainty": own,
                "model": {"name": "unet", "widths": [8]},
                "rollout": {"evaluate": 2, "long": 2},
                **sections,
            },
        )

    return make


@pytest.fixture
def random_run(random_job):
    optimizer, schedule = {"name": "adamw", "lr": 1e-2}, {"name": "cosine"}
    training = {"steps": 300, "batch_size": 16, "optimizer": optimizer, "schedule": schedule}
    return api.train(random_job(training=training)).path


@pytest.fixture
def short_run(random_job):
    return api.train(random_job({"starts": 1}, training={"steps": 2})).path


def test_the_fair_crps_is_the_double_sum_and_does_not_depend_on_the_number_of_members():
    generator = torch.Generator().manual_seed(0)
    errors = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64)
    between = (errors[:, :, None] - errors[:, None]).abs().sum((1, 2))
    expected = errors.abs().mean(1) - between / (2 * 5 * 4)
    torch.testing.assert_close(fair_crps(errors), expected)
    # Members and truth are draws of one normal distribution: its CRPS is sigma / sqrt(pi).
    for members in (2, 7):
        draws = torch.randn(40_000, members, generator=generator, dtype=torch.float64)
        truth = torch.randn(40_000, 1, generator=generator, dtype=torch.float64)
        assert float(fair_crps(draws - truth).mean()) == pytest.approx(np.pi**-0.5, rel=0.02)


def test_a_share_of_members_is_that_of_ranks():
    rank = np.array([0, 1, 10, 18, 19])
    zeros = np.zeros(5)
    assert Pairs(zeros, zeros, zeros, zeros, rank, 19).share_inside(0.9) == 0.6
    assert Pairs(zeros, zeros, zeros, zeros, rank, 18).share_inside(0.9) is None


def test_members_that_all_are_the_truth_have_it_inside_their_band():
    members = [{"u": np.array([2.0, 3.0 + number], "f4")} for number in range(19)]
    for truth, share in (([2.0, 12.0], 1.0), ([2.0, 2.5], 0.5), ([1.0, 99.0], 0.0)):
        pairs = _drawn(np.array(truth, "f4"), members, "u", np.arange(2), (0, 0))
        assert pairs.share_inside(0.9) == share


def test_members_have_the_spread_of_the_truth(random_run, tmp_path):
    scores = api.evaluate(random_run).metrics
    # The error is of 16 draws, as a step has one random number: within 3 / sqrt(2 * 16) of itself.
    assert 0.65 < scores["spread_over_error_min"] <= scores["spread_over_error_max"] < 2.1
    assert scores["members_coverage_min"] > 0.7  # of 0.9; all of 16 are inside one time in five
    assert scores["members_crps_over_mae_max"] < 0.85  # of a normal distribution: 0.71
    config = load_config(EmulationConfig, random_run / "config.yaml")
    emulator = surrogate.load(random_run / "model", config)
    assert isinstance(emulator, Emulator)
    first = {"u": np.ones(CELLS, "f4")}
    many = NoiseEnsemble(emulator, 200)
    (members,) = rollout_members(many, first, 1)
    values = np.stack([frame["u"] for frame in members])
    assert values.std(0).mean() == pytest.approx(SPREAD, rel=0.25)
    assert np.corrcoef(values.T).min() > 0.8  # the number of a step is that of all cells
    assert np.allclose(step_once(many, first)["u"], values.mean(0))


def test_predictions_repeat_continue_and_change_with_the_seed(short_run, tmp_path):
    api.predict(short_run, tmp_path / "run23.nc", tmp_path / "one.nc", steps=STEPS)
    api.predict(short_run, tmp_path / "run23.nc", tmp_path / "two.nc", steps=STEPS)
    with xr.open_dataset(tmp_path / "one.nc") as one, xr.open_dataset(tmp_path / "two.nc") as two:
        assert one.identical(two)
        assert bool(((one["u_low"] < one["u"]) & (one["u"] < one["u_high"])).all())
    config = load_config(EmulationConfig, short_run / "config.yaml")
    emulator = surrogate.load(short_run / "model", config)
    first = {"u": np.ones(CELLS, "f4")}
    whole = Rollout(with_draws(emulator, config), first)
    whole.advance()
    state = whole.state()
    expected = whole.advance()
    rest = Rollout(with_draws(emulator, config), first)
    rest.continue_at(1, state)
    for one, other in zip(rest.advance(), expected, strict=True):
        assert np.array_equal(one["u"], other["u"])
    seeds = [NoiseEnsemble(emulator, 2, seed) for seed in (0, 1)]
    (a, b), (c, _) = (next(rollout_members(e, first, 1)) for e in seeds)
    assert not np.array_equal(a["u"], b["u"])
    assert not np.array_equal(a["u"], c["u"])


def test_a_resumed_training_is_that_of_one_go_bit_for_bit(random_job, interrupt):
    path = random_job(training={"steps": 12}, rollout={"steps": 2, "begin": 0.5})
    whole = api.train(path).path
    interrupt(path, 7)
    resumed = api.train(path, resume=True).path
    for name in ("weights.safetensors", "intervals.json"):
        assert (resumed / "model" / name).read_bytes() == (whole / "model" / name).read_bytes()


def test_shares_of_a_batch_have_the_loss_of_the_whole(random_job):
    config = load_config(EmulationConfig, random_job())
    begun = prepare(config, RunDirectory.create(config.run.root, "shares", config).path)
    try:
        task = begun.task
        batch = tensors(begun.loaders["train"].files.read(np.arange(6)))
        task.at(Progress(3, 10, 0))
        model = task.model.double()
        for parameter in model.parameters():  # not the identity, so that the noise counts
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(1))
        batch = {n: v.double() for n, v in batch.items()}
        torch.manual_seed(0)
        whole = task.loss(batch)[0].item()
        torch.manual_seed(1)
        halves = [{n: v[k : k + 3] for n, v in batch.items()} for k in (0, 3)]
        parts = [task.loss(half)[0].item() for half in halves]
        assert whole == pytest.approx(sum(parts) / 2, rel=1e-13)
        task.at(Progress(4, 10, 0))
        assert whole != task.loss(batch)[0].item()
        assert set(task.metrics(batch)) == {"loss", "crps_u"}
        first, second = (task.metrics(batch)["loss"].item() for _ in range(2))
        assert first == second
    finally:
        begun.close()


def test_the_loss_is_the_fair_crps_of_the_scaled_errors(random_job):
    config = load_config(EmulationConfig, random_job({"loss_members": 3}))
    begun = prepare(config, RunDirectory.create(config.run.root, "loss", config).path)
    try:
        task, emulator = begun.task, begun.task.model
        torch.nn.init.normal_(
            emulator.advance.condition[0].weight, generator=torch.Generator().manual_seed(0)
        )
        for name, parameter in emulator.named_parameters():
            if "film" in name:
                torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
        batch = tensors(begun.loaders["train"].files.read(np.arange(2)))
        loss = task.loss(batch)[0].item()
        expected = []
        for sample in range(2):
            state, truth = batch["u"][sample]
            drawn = noise_of(state.numpy(), [2, 3 * 2], config.seed, 0, 0)[0].reshape(3, 2)
            answers = emulator(state.expand(3, -1), torch.from_numpy(drawn))[0]
            errors = (answers - truth) / emulator.output_scales()[0]
            expected.append(fair_crps(errors[None]).mean().item())
            assert (answers[0] - answers[1]).abs().max().item() > 1e-3
        assert loss == pytest.approx(sum(expected) / 2, rel=1e-5)
    finally:
        begun.close()


def test_noise_is_an_input_of_exported_steps(short_run, tmp_path):
    about = api.export(short_run, tmp_path / "step.onnx")
    assert [entry["name"] for entry in about["inputs"]] == ["u", "noise"]
    assert about["inputs"][1]["shape"] == [1, 2]
    assert about["largest_difference"] < 1e-4
    (function,) = EmulationJob().traced(short_run)
    assert [spec.name for spec in function.inputs] == ["u", "noise"]
    assert function.inputs[0].low is not None
    assert function.inputs[1].low is None  # any number is inside
    assert [values.shape[1:] for values in function.typical] == [(CELLS,), (2,)]


@pytest.mark.parametrize(
    ("uncertainty", "sections", "message"),
    [
        ({"members": 1}, {}, "needs members >= 2"),
        ({"noise": 0, "loss_members": 3}, {}, "not used with noise: 0"),
        ({}, {"training": {"strategy": "spatial"}}, "choose another"),
    ],
)
def test_what_noise_does_not_go_with_is_refused(random_job, uncertainty, sections, message):
    with pytest.raises((ConfigProblems, ConfigError), match=message):
        load_config(EmulationConfig, random_job(uncertainty, **sections))


def test_weights_of_another_noise_are_no_start(random_job, short_run):
    path = random_job({"noise": 4}, start={"path": str(short_run)})
    with pytest.raises(ConfigError, match=r"uncertainty.noise is 4, the weights .* have 2"):
        api.train(path)


def test_a_model_without_a_condition_is_refused(random_job, monkeypatch):
    monkeypatch.setattr(UNetConfig, "conditioned", False)
    with pytest.raises(ConfigProblems, match="unet has none"):
        load_config(EmulationConfig, random_job())

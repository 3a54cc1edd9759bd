"""Masks that move: cells outside of the mask of a step count nowhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import xarray as xr
from safetensors.torch import load_file

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.stages import prepare, statistics_of
from scitoolkit.io.campaign import open_campaign
from scitoolkit.io.campaign.kept import training_moments
from scitoolkit.io.campaign.measure import Question
from scitoolkit.io.campaign.rows import row_sets
from scitoolkit.io.fields import write_fields

CELLS, ROWS = 16, 14


def write(path, seed: int, outside: float, *, sharp: bool = True, frames: int = ROWS):
    """Write ice `h` where `ice` is 1, a number outside, a wind `w` everywhere."""
    x, t = 2 * np.pi * np.arange(CELLS) / CELLS, 0.4 * np.arange(frames)[:, None]
    ice = np.sin(x - 0.5 * t + seed) > -0.3
    h = np.where(ice, 2 + np.cos(2 * x - t), outside)
    w = 0 * x + np.sin(t + seed)
    fields = {"h": h, "ice": ice if sharp else 0.7 * ice, "w": w}
    data = {n: (("time", "x"), np.broadcast_to(v, h.shape).astype("f4")) for n, v in fields.items()}
    return write_fields(xr.Dataset(data, {"time": t[:, 0], "x": x}), path)


@pytest.fixture
def plan(tmp_path, job):
    def make(outside: float = 0.0, *, sharp: bool = True, **sections):
        folder = tmp_path / f"ice{outside:g}{sharp}"
        folder.mkdir(exist_ok=True)
        for seed in range(3):
            write(folder / f"s{seed}.nc", seed, outside, sharp=sharp)
        data = {"path": str(folder), "inputs": ["h", "ice", "w"], "outputs": ["h"]}
        sections = {
            "boundary": {"x": "circular"},
            "split": {"by": "simulation", "train": 1, "validation": 1, "test": 1},
            "training": {"steps": 5, "batch_size": 4},
            "rollout": {"steps": 2, "long": 0},
            **sections,
        }
        return job({**data, "mask_of_step": "ice", **sections.pop("data", {})}, **sections)

    return make


@pytest.mark.parametrize("settings", [{}, {"residual": False, "model": {"name": "resnet"}}])
def test_values_outside_of_the_mask_change_nothing(plan, settings):
    """Statistics, losses, weights and scores are bit for bit those of other values there."""
    results = []
    for outside in (0.0, -7e3):
        run = api.run(plan(outside, **settings)).path
        results.append(
            (load_file(run / "model" / "weights.safetensors"), api.evaluate(run).metrics)
        )
    (weights, scores), (others, other_scores) = results
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    errors = [name for name in scores if "rmse" in name or "persistence" in name]
    assert len(errors) > 2
    assert {n: scores[n] for n in errors} == {n: other_scores[n] for n in errors}


def test_statistics_and_the_loss_are_those_of_the_cells_of_the_mask(plan):
    config = load_config(EmulationConfig, plan(50.0), ["rollout.steps=1", "rollout.validation=1"])
    begun = prepare(config)
    statistics = statistics_of(begun.opened).statistics
    rows = [begun.opened.data.frame(k) for r in begun.opened.parts["train"] for k in r]
    inside = np.concatenate([f["h"][f["ice"] > 0] for f in rows]).astype(float)
    mean, scale = (float(t) for t in statistics.values["h"])
    assert mean == pytest.approx(inside.mean(), rel=1e-6)
    assert scale == pytest.approx(inside.std(), rel=1e-5)
    changes = [
        (b["h"] - a["h"])[(a["ice"] > 0) & (b["ice"] > 0)] for a, b in itertools.pairwise(rows)
    ]
    change = np.sqrt(np.mean(np.concatenate(changes).astype(float) ** 2))
    assert float(statistics.changes["h"]) == pytest.approx(change, rel=1e-5)
    batch = {n: torch.as_tensor(v) for n, v in next(iter(begun.loaders["train"])).items()}
    model = begun.model.eval()
    with torch.no_grad():
        loss = float(begun.task.metrics(batch)["loss"])
        (answer,) = model(*(batch[n][:, 0].clone() for n in ("h", "ice", "w")))
        alone = [
            float(begun.task.metrics({n: v[k : k + 1] for n, v in batch.items()})["loss"])
            for k in range(len(answer))
        ]
    begun.close()
    valid = batch["ice"][:, 1] > 0
    squares = ((answer - batch["h"][:, 1]) / change) ** 2
    error = [float(sample[mask].mean()) for sample, mask in zip(squares, valid, strict=True)]
    assert alone == pytest.approx(error, rel=1e-4)
    assert loss == pytest.approx(np.mean(error), rel=1e-4)  # whatever mask the others have


def test_a_rollout_reads_the_mask_of_each_step(tmp_path, plan):
    run = api.run(plan()).path
    source = write(tmp_path / "start.nc", 5, 0.0, frames=4)
    longer = write(tmp_path / "longer.nc", 5, 0.0, frames=12)
    with pytest.raises(ConfigError, match="ice"):
        api.predict(run, source, tmp_path / "p.nc", steps=4)
    out = api.predict(run, source, tmp_path / "p.nc", steps=4, forcing=longer)
    with xr.open_dataset(out) as own:
        assert np.isfinite(own["h"].values).all()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["data.mask_of_step=h"], "no output"),
        (["data.mask_of_step=q"], "one of inputs"),
        (["data.history=2"], "history"),
        (["data.mask=missing"], "land"),
        (["climatology.by=constant"], "climatology"),
        (["guards=[{name: value_range, ranges: {h: [0, 1]}}]"], "guards"),
        (["transport={x: 2}"], "transport"),
        (["training.strategy=spatial"], "spatial"),
    ],
)
def test_what_does_not_go_with_it_is_refused(plan, options, what):
    with pytest.raises(ConfigError, match=what):
        load_config(EmulationConfig, plan(), options)


def test_a_mask_in_another_order_of_dims_is_the_same(tmp_path):
    """Moments are those of the cells, whatever the order of dims in the file."""
    rng = np.random.default_rng(0)
    h, ice = rng.standard_normal((6, 3, 5)), rng.random((6, 3, 5)) > 0.4
    fields = {"h": (("time", "y", "x"), h), "ice": (("time", "x", "y"), ice.swapaxes(1, 2) * 1.0)}
    write_fields(xr.Dataset(fields, {"time": np.arange(6.0)}), tmp_path / "a.nc")
    campaign = open_campaign(tmp_path / "a.nc", ["h", "ice"])
    question = Question(2, ("h",), valid="ice", masked=("h",))
    sets, blocks = row_sets(campaign), campaign.index.blocks
    found, _ = training_moments(campaign, sets, blocks, question)
    mean, scale = found.values["h"].result()
    assert (mean[0], scale[0]) == pytest.approx((h[ice].mean(), h[ice].std()), rel=1e-6)
    change = (h[2:] - h[:-2])[ice[2:] & ice[:-2]]
    assert found.changes["h"].root_mean_square()[0] ** 2 == pytest.approx((change**2).mean())


def test_a_fraction_is_no_mask(plan):
    with pytest.raises(DataError, match="0 and 1"):
        api.run(plan(sharp=False))

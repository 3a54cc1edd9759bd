"""Fields divided among processes: the same losses, gradients, rollouts and bytes as predicted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from command_line import run_process

from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.config import DataConfig, EmulationConfig
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.emulator import build
from scitoolkit.emulation.spatial.joined import JoinedEmulator
from scitoolkit.emulation.spatial.slab_training import Slab
from scitoolkit.emulation.spatial.volume import forward_bytes
from scitoolkit.emulation.surrogate import load
from scitoolkit.emulation.task import EmulationTask
from scitoolkit.emulation.variables import Layout, Variable
from scitoolkit.io.fields import write_fields
from scitoolkit.testing.ranks import run_ranks
from scitoolkit.training.traffic import Traffic

CELLS = 64
FIELDS = tuple(Variable(n, ("x", "y"), (CELLS, 8), "", True) for n in "uv")
FORCE = Variable("f", (), (), "", False)
LAYOUT = Layout(
    (*FIELDS, FORCE),
    FIELDS,
    {"x": CELLS, "y": 8},
    {"x": list(range(CELLS)), "y": list(range(8))},
    "t",
)


def config(**sections) -> EmulationConfig:
    data = {"path": "none.nc", "inputs": ["u", "v", "f"], "outputs": ["u", "v"]}
    training = {"strategy": "spatial"}
    return EmulationConfig.model_validate({"data": data, "training": training, **sections})


def made(settings: EmulationConfig, layout: Layout = LAYOUT):
    torch.manual_seed(0)
    emulator = build(settings, layout).double()
    for parameter in emulator.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    emulator.advance.out_scale.fill_(0.1)
    return emulator


UNET = {"name": "unet", "widths": [8, 6], "patch": 2}
ATTENTION = {"name": "field_transformer", "width": 16, "blocks": 2, "patch": 2}
CASES = {
    "unet, transport, coordinates, periodic": {
        "model": UNET,
        "boundary": {"x": "circular"},
        "transport": {"x": 3, "y": 2},
        "coordinates": ["x"],
    },
    "unet, transport, walls": {"model": UNET, "transport": {"x": 3}},
    "unet, edges": {"model": UNET, "boundary": {"x": "edge"}},
    "convnext_unet": {"model": {"name": "convnext_unet", "widths": [6, 8]}},
    "fno": {"model": {"name": "fno", "width": 6, "modes": [4, 3]}, "boundary": {"x": "circular"}},
    "fno, walls": {"model": {"name": "fno", "width": 6, "modes": [4, 3]}},
    "factorised_fno": {"model": {"name": "factorised_fno", "width": 6, "modes": [4]}},
    "field_transformer, periodic": {
        "model": ATTENTION,
        "boundary": {"x": "circular"},
    },
    "field_transformer, axial, film, experts": {
        "model": {**ATTENTION, "heads": 8, "attention": "axial", "experts": 3},
        "conditioning": "film",
    },
    "unet, film": {"model": UNET, "conditioning": "film"},
    "convnext_unet, film": {
        "model": {"name": "convnext_unet", "widths": [6, 8]},
        "conditioning": "film",
    },
    "fno, film": {"model": {"name": "fno", "width": 6, "modes": [4, 3]}, "conditioning": "film"},
    "resnet, guards": {
        "model": {"name": "resnet", "width": 6, "blocks": 1},
        "boundary": {"x": "circular"},
        "guards": [
            {"name": "spectral_filter"},
            {"name": "value_range", "ranges": {"u": [-2, 2]}},
            {"name": "fixed_mean", "values": {"v": "kept"}},
        ],
    },
    "resnet, elliptic diagnostic": {
        "model": {"name": "resnet", "width": 6, "blocks": 1},
        "diagnostic": {"outputs": ["v"], "model": {"name": "elliptic", "modes": [4]}},
    },
}


def outcome(emulator, task, batch):
    """Return the loss, the gradients, and a rollout of ten steps."""
    loss, _ = task.loss(batch)
    loss.backward()
    gradients = [p.grad for p in emulator.parameters()]
    state, steps = [batch[n][:, 0] for n in "uvf"], []
    with torch.no_grad():
        for _ in range(10):
            state = [*emulator(*state), state[2]]
            steps.append(torch.stack(state[:2]))
    return loss.detach(), gradients, torch.stack(steps)


@pytest.mark.parametrize("sections", CASES.values(), ids=list(CASES))
def test_slabs_equal_the_whole(sections):
    settings = config(rollout={"steps": 2, "begin": 0}, **sections)
    weights = torch.rand(CELLS, 8, dtype=torch.float64)
    batch = {n: torch.randn(2, 3, CELLS, 8, dtype=torch.float64) for n in "uv"}
    batch["f"] = torch.randn(2, 3, dtype=torch.float64)
    whole = made(settings)
    task = EmulationTask(whole, settings.rollout, None, weights)
    task.weights = weights
    expected = outcome(whole, task, batch)

    def work(ranks):
        slab = Slab(settings, LAYOUT, ranks)
        assert slab.dim == "x"
        part = slab.emulator(made(settings))
        own = EmulationTask(part, settings.rollout, None, None)
        own.weights = slab.on_grid(weights)
        return outcome(part, own, {n: slab.on_grid(v) if n != "f" else v for n, v in batch.items()})

    for size in (2, 4):
        found = run_ranks(size, work, Traffic)
        loss = sum(f[0] for f in found) / size
        assert float(loss) == pytest.approx(float(expected[0]), rel=1e-12)
        rollout = torch.cat([f[2] for f in found], 3)
        torch.testing.assert_close(rollout, expected[2], rtol=1e-10, atol=1e-10)
        for gradient, *parts in zip(expected[1], *(f[1] for f in found), strict=True):
            if gradient is not None:
                atol = 1e-11 * float(gradient.abs().max()) + 1e-15
                torch.testing.assert_close(sum(parts) / size, gradient, rtol=1e-10, atol=atol)


@pytest.mark.parametrize("name", ["unet, transport, walls", "fno, film", "resnet, guards"])
def test_a_joined_emulator_returns_the_whole_fields_on_all_processes(name):
    settings = config(**CASES[name])
    whole = made(settings)
    state = [torch.randn(2, CELLS, 8, dtype=torch.float64) for _ in "uv"]
    state.append(torch.randn(2, dtype=torch.float64))

    def work(ranks):
        with torch.no_grad():
            return JoinedEmulator(made(settings), settings, ranks)(*state)

    with torch.no_grad():
        expected = whole(*state)
    for found in run_ranks(4, work, Traffic):
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "model",
    [UNET, {"name": "convnext_unet", "widths": [4, 6], "blocks": 1}, {"name": "resnet"}],
    ids=lambda m: m["name"],
)
def test_bytes_are_those_of_the_formula(model):
    settings = config(model=model, boundary={"x": "circular"})

    def work(ranks):
        slab = Slab(settings, LAYOUT, ranks)
        part = slab.emulator(made(settings)).float()
        state = [torch.zeros(3, CELLS // ranks.size, 8)] * 2
        with torch.no_grad():
            part(*state, torch.zeros(3))
        return ranks.traffic.bytes

    predicted = forward_bytes(settings.model, 3, [8], batch=3)
    assert run_ranks(2, work, Traffic) == [predicted] * 2
    assert run_ranks(4, work, Traffic) == [predicted] * 4


@pytest.mark.parametrize(("attention", "share"), [("full", 1.0), ("axial", 0.5)])
def test_attention_receives_four_tensors_for_its_heads(attention, share):
    """And halos of the first and the last convolution."""
    settings = config(model={**ATTENTION, "heads": 8, "attention": attention})

    def work(ranks):
        slab = Slab(settings, LAYOUT, ranks)
        part = slab.emulator(made(settings)).float()
        with torch.no_grad():
            part(*[torch.zeros(3, CELLS // ranks.size, 8)] * 2, torch.zeros(3))
        return ranks.traffic.bytes

    for size in (2, 4):
        patches = CELLS // size // 2 * 4
        swapped = 2 * 4 * share * patches * 16 * (size - 1) / size  # blocks, tensors, width
        halo = (4 * 3 + 16) * 4  # channels of the cells of a patch, width; a cross-section
        ends = [1, *[2] * (size - 2), 1]
        expected = [3 * 4 * (swapped + halo * end) for end in ends]
        assert run_ranks(size, work, Traffic) == expected


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"model": {"name": "unet", "widths": [8] * 4}}, "x: slabs of 16 cells, fewer than 32"),
        ({"model": UNET, "transport": {"x": 17}}, "x: transport reaches 17 cells"),
        (
            {"boundary": {"x": "circular"}, "symmetries": {"shift": ["x"]}, "model": UNET},
            "x: symmetries move cells",
        ),
        ({"model": UNET, "spatial_dim": "z"}, "'z' is not a dim"),
        ({"model": {**ATTENTION, "heads": 2, "patch": 1}}, "2 heads on 4 processes"),
        ({"model": UNET, "rollout": {"noise": 0.1}}, "the same noise"),
    ],
)
def test_what_cannot_be_divided_is_refused_by_name(sections, said):
    def work(ranks):
        settings = config(**sections)
        return Slab(settings, LAYOUT, ranks).emulator(made(settings))

    with pytest.raises(ConfigError, match=said):
        run_ranks(4, work, Traffic)


@pytest.mark.multiproc
def test_two_processes_train_as_one(job, tmp_path):
    rng = np.random.default_rng(0)
    t, x = np.arange(30)[:, None, None], np.arange(CELLS)[None, :, None] / CELLS
    values = sum(np.sin(2 * np.pi * (k * (x - 0.02 * t) + rng.random(6))) / k for k in (1, 2, 3))
    data = xr.Dataset(
        {"u": (("time", "x", "y"), values.astype("f4"))},
        coords={"time": np.arange(30), "x": np.arange(CELLS)},
    )
    section = {
        "path": str(write_fields(data, tmp_path / "u.nc")),
        "inputs": ["u"],
        "outputs": ["u"],
    }
    path = job(
        section,
        boundary={"x": "circular"},
        coordinates=["x"],
        spatial_dim="x",
        model={"name": "unet", "widths": [4, 6]},
        rollout={"steps": 2, "begin": 0.0},
        symmetries={"mirror": {"y": []}},
        split={"train": 22, "validation": 4, "test": 4},
        training={
            "strategy": "spatial",
            "steps": 3,
            "log_every": 1,
            "optimizer": {"name": "sgd", "lr": 0.1},
        },
    )
    settings = load_config(EmulationConfig, path)
    models, losses, outcomes = [], [], []
    for count in (1, 2):
        root = tmp_path / str(count)
        strategy = "single" if count == 1 else "spatial"
        done = run_process(
            tmp_path,
            "train",
            path,
            f"run.root={root}",
            f"training.strategy={strategy}",
            "--nproc",
            count,
        )
        assert done.code == 0, done.err
        (run,) = (Path(p).parent for p in root.rglob("metrics.jsonl"))
        models.append(load(run / "model", settings))
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses.append([r["value"] for r in rows if r["name"] in ("train/loss", "validation/loss")])
        outcomes.append(_evaluated(run, section["path"], count))
    assert len(losses[0]) > 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    scores, forecasts = zip(*outcomes, strict=True)
    assert scores[0].keys() == scores[1].keys()
    for name, value in scores[0].items():
        if isinstance(value, float) and "seconds" not in name:
            assert scores[1][name] == pytest.approx(value, rel=1e-3), name
    assert np.allclose(forecasts[0], forecasts[1], atol=1e-4)
    for one, two in zip(*(m.state_dict().values() for m in models), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


def _evaluated(run: Path, source: str, count: int):
    """Return the metrics of an evaluation and a forecast, both by so many processes."""
    processes = ["--nproc", count]
    evaluated = run_process(run, "evaluate", run, "--json", *processes)
    output = run / "forecast.nc"
    done = run_process(run, "predict", run, source, "-o", output, "--steps", 3, *processes)
    assert (evaluated.code, done.code) == (0, 0), evaluated.err + done.err
    with xr.open_dataset(output) as found:
        return evaluated.json["metrics"], found["u"].values


@pytest.mark.multiproc
def test_several_processes_for_a_surrogate_of_one_are_refused(trained):
    done = run_process(Path(trained), "evaluate", trained, "--nproc", 2)
    assert done.code == 2
    assert "spatial, which divides fields" in done.err


def test_a_process_reads_its_slab_alone(tmp_path):
    values = np.random.default_rng(0).normal(size=(6, 512, 128)).astype("f4")
    path = write_fields(xr.Dataset({"u": (("time", "x", "y"), values)}), tmp_path / "u.nc")
    data = open_data(DataConfig(path=path, inputs=["u"], outputs=["u"]))
    source = data.source(np.arange(5), [0, 1], box={"x": slice(128, 256)})
    counters = [c for rows in source.sets.values() for c in rows.counters()]
    before = sum(c.nbytes for c in counters)
    batch = source.read(np.array([1, 3]))
    assert np.array_equal(batch["u"], np.stack([values[[1, 2], 128:256], values[[3, 4], 128:256]]))
    assert sum(c.nbytes for c in counters) - before <= 4 * values[0].nbytes / 4

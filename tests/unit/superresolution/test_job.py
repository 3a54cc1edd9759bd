"""The main path: train, evaluate, predict, load; on waves that move along a periodic dim."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from advected_waves import LENGTH, wave_fields
from prepared_crops import prepare, shape_of

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.data_facts import DataFacts, Var
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.fields import write_fields
from scitoolkit.io.parts import Parts
from scitoolkit.superresolution import SuperresolutionConfig, SuperresolutionSurrogate, stream
from scitoolkit.superresolution import predict as prediction
from scitoolkit.superresolution.crops import CropSource
from scitoolkit.superresolution.simulations import Simulations
from scitoolkit.superresolution.spectrum import WaveGains


def test_a_short_training_beats_interpolation_on_another_file(trained):
    figures = json.loads((trained / "model" / "metrics.json").read_text())
    assert figures["r2_u"] > figures["r2_u_cubic"]
    assert figures["r2_u"] > figures["r2_u_multilinear"] + 0.02
    assert (trained / "report" / "index.html").is_file()
    again = api.evaluate(trained / "model")  # a surrogate directory, as it is shipped
    assert again.metrics["r2_u"] == pytest.approx(figures["r2_u"], abs=1e-6)


@pytest.fixture(scope="module")
def surrogate(trained):
    return SuperresolutionSurrogate.load(trained / "model")


@pytest.fixture
def coarse(surrogate):
    return surrogate.coarse(coarsened(wave_fields(phase=0.37)))


def coarsened(data):
    return data.isel(t=slice(None, None, 4), x=slice(None, None, 4))


@pytest.mark.parametrize("suffix", [".nc", ".h5", ".zarr"])
def test_a_streamed_file_equals_the_direct_query(coarse, tmp_path, suffix):
    if suffix == ".zarr":
        pytest.importorskip("zarr")
    t, x = np.linspace(0.05, 0.9, 11), np.linspace(-0.3, 2.9, 37)
    path = stream(
        coarse,
        {"t": t, "x": x},
        tmp_path / f"out{suffix}",
        chunk=50,
        derived={"slope": "dif(u,x)", "residual": "dif(u,t) + speed*dif(u,x)"},
        facts=DataFacts((Var("u", "m/s", standard_name="eastward_wind"),)),
    )
    options = {"engine": "zarr", "consolidated": False} if suffix == ".zarr" else {}
    with xr.open_dataset(path, **options) as found:
        assert found["u"].dims == ("t", "x")
        assert found["u"].attrs == {"units": "m/s", "standard_name": "eastward_wind"}
        points = np.stack(np.meshgrid(t, x, indexing="ij"), -1).reshape(-1, 2)
        assert np.allclose(found["u"].values.ravel(), coarse.query(points)[0, :, 0], atol=1e-6)
        step = np.array([0, 1e-3])
        slope = (coarse.query(points + step) - coarse.query(points - step))[0, :, 0] / 2e-3
        close = np.abs(found["slope"].values.ravel() - slope) < 0.05
        assert close.mean() > 0.97  # the rest lies at faces of cells, where the slope jumps
        assert np.isfinite(found["residual"].values).all()


def test_predict_refines_as_in_training_and_scattered_points(trained, coarse, tmp_path):
    given = write_fields(coarsened(wave_fields(phase=0.37)), tmp_path / "low.nc")
    with xr.open_dataset(api.predict(trained, given, tmp_path / "fine.nc")) as fine:
        assert dict(fine.sizes) == {"t": 17, "x": 24}
        some = np.stack([fine["t"].values[:3], fine["x"].values[5:8]], -1)
        wanted = fine["u"].values[[0, 1, 2], [5, 6, 7]]
    assert np.allclose(coarse.query(some)[0, :, 0], wanted, atol=1e-6)


def test_mirror_images_make_a_prediction_symmetric(job_file):
    path = job_file(
        crop={"size": {"t": 17}, "symmetries": {"mirror": {"x": ["u"], "t": []}}},
        model={"average": True},
        pde={"equations": {}, "weight": 0.0},
        training={"steps": 2},
    )
    surrogate = SuperresolutionSurrogate.load(api.train(path).path / "model")
    low = coarsened(wave_fields()).transpose("t", "x")
    mirrored = low.copy()
    mirrored["u"] = -low["u"].isel(x=-np.arange(6) % 6).assign_coords(x=low["x"])
    points = np.random.default_rng(0).uniform([0, 0], [1, LENGTH], (50, 2))
    turned = points * [1, -1]
    from scitoolkit.ops import taylor

    plan = taylor.make_plan(2, [(1, 0), (0, 1), taylor.operator({(0, 2): 1.0, (0, 1): 0.5})])
    one = surrogate.coarse(low).query(points, plan)
    two = surrogate.coarse(mirrored).query(turned, plan)
    assert np.allclose(one[0], -two[0], atol=1e-5)
    place = {op: plan.index(op) for op in [(1, 0), (0, 1)]}
    assert np.allclose(one[place[1, 0]], -two[place[1, 0]], atol=1e-4)
    assert np.allclose(one[place[0, 1]], two[place[0, 1]], atol=1e-4)
    combined = plan.index(taylor.operator({(0, 2): 1.0, (0, 1): 0.5}))
    parts = taylor.make_plan(2, [(0, 2), (0, 1)])
    apart = surrogate.coarse(low).query(points, parts)
    wanted = apart[parts.index((0, 2))] + 0.5 * apart[parts.index((0, 1))]
    assert np.allclose(one[combined], wanted, atol=1e-3)


def test_crops_are_functions_of_their_number(job_file):
    path = job_file(crop={"symmetries": {"shift": ["x"], "mirror": {"x": ["u"]}}})
    config = load_config(SuperresolutionConfig, path)
    made = prepare(config)
    source = CropSource(made.opened.data, [0], *shape_of(made), config.crop)
    batch, again = source.read(np.arange(12)), source.read(np.array([7]))
    assert all(np.array_equal(batch[k][7:8], again[k]) for k in batch)
    assert set(batch["signs"].ravel()) == {-1.0, 1.0}
    assert batch["low"].shape == (12, 1, 3, 6)


def test_the_training_learns_from_boundary_conditions(job_file):
    path = job_file(
        boundaries=[{"field": "u", "dim": "t", "at": 0.0, "value": 0.5, "order": 0}],
        training={"steps": 2, "log_every": 1},
    )
    run = api.train(path, ["boundary_weight=0.5"])
    assert "boundary" in (run.path / "metrics.jsonl").read_text()


def test_lazy_files_are_cropped_as_those_in_memory(job_file):
    config = load_config(SuperresolutionConfig, job_file())
    made = prepare(config)
    held, lazy = (Simulations(made.opened.data.opened, kept, "") for kept in (True, False))
    one, two = (
        CropSource(s, [0], *shape_of(made), config.crop).read(np.arange(3)) for s in (held, lazy)
    )
    assert all(np.array_equal(one[k], two[k]) for k in one)


def test_a_periodic_box_of_two_lengths_is_refined_like_two(trained, surrogate, tmp_path):
    own = wave_fields(phase=0.37)
    twice = xr.concat([own, own.assign_coords(x=own.x + LENGTH)], "x", data_vars="all")
    twice["x"].attrs = own["x"].attrs
    points = np.random.default_rng(0).uniform([0.1, 0.0], [0.9, LENGTH], (50, 2))
    once = surrogate.coarse(coarsened(own)).query(points)
    for shift in (0.0, LENGTH):
        found = surrogate.coarse(coarsened(twice)).query(points + np.array([0.0, shift]))
        assert np.allclose(found, once, atol=1e-5)
    path = write_fields(twice, tmp_path / "twice.nc")
    one = write_fields(own, tmp_path / "one.nc")
    scores = [api.evaluate(trained / "model", p).metrics["r2_u"] for p in (one, path)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)
    low = write_fields(coarsened(twice), tmp_path / "low.nc")
    with xr.open_dataset(api.predict(trained, low, tmp_path / "fine.nc")) as fine:
        assert fine.sizes["x"] == 2 * own.sizes["x"]


def test_waves_get_the_power_of_a_flow_apart_in_reports_and_in_files(job_file, tmp_path):
    apart = write_fields(wave_fields(phase=0.71), tmp_path / "apart.nc")
    run = api.run(job_file(spectrum=str(apart), training={"steps": 20})).path
    found = api.evaluate(run).metrics
    assert found["spectrum_error_refined"] < found["spectrum_error"] - 3  # decades
    assert found["r2_u_refined"] > found["r2_u"] - 0.01
    low = write_fields(coarsened(wave_fields(phase=0.37)), tmp_path / "low.nc")
    plain = SuperresolutionSurrogate.load(run / "model")
    gains = WaveGains.load(run / "model")
    assert gains is not None
    with (
        xr.open_dataset(low) as given,
        xr.open_dataset(api.predict(run, low, tmp_path / "fine.nc")) as fine,
    ):
        points = np.stack(np.meshgrid(fine.t, fine.x, indexing="ij"), -1).reshape(-1, 2)
        values = plain.coarse(given).query(points)[0].T.reshape(1, *fine["u"].shape)
        expected = gains.apply(values, 2, LENGTH)
        assert np.allclose(fine["u"].values, expected[0], atol=1e-5)
        with pytest.raises(ConfigError, match="do not fill the period"):
            stream(plain.coarse(given), {"x": fine.x[:7].values}, tmp_path / "a.nc", gains=gains)


@pytest.mark.parametrize(("seen", "share"), [(0, 0.25), (2, 0.75), (3, 1.0), (9, 1.0)])
def test_the_weight_of_the_equations_grows_over_the_warm_up(job_file, seen, share):
    pde = {
        "equations": {"advection": "dif(u,t) + speed*dif(u,x)"},
        "weight": 0.05,
        "warmup_steps": 4,
    }
    config = load_config(SuperresolutionConfig, job_file(pde=pde))
    made = prepare(config)
    task = made.task
    task.model.train().steps_seen.fill_(seen)
    total, parts = task.loss(next(iter(made.loaders["train"])))
    added = (total - parts["regression"]).item()
    residual = parts["residual_advection"].item()
    assert added == pytest.approx(0.05 * share * residual, rel=1e-4)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_warm_up_counts_optimizer_steps(job_file, accumulate):
    pde = {"equations": {"advection": "dif(u,t) + speed*dif(u,x)"}, "warmup_steps": 50}
    report = api.train(job_file(pde=pde, training={"accumulate": accumulate}))  # 4 steps
    model = SuperresolutionSurrogate.load(report.path / "model").model
    assert model.steps_seen == 4


@pytest.mark.parametrize("symmetries", [{"shift": ["x"]}, {"shift": [], "mirror": {"x": ["u"]}}])
def test_a_whole_uneven_period_is_not_moved_by_nodes(job_file, tmp_path, symmetries):
    even = wave_fields()
    x = even.x.values + 0.2 * (even.x.values[1] - even.x.values[0]) * np.sin(np.arange(even.x.size))
    path = write_fields(even.assign_coords(x=x), tmp_path / "uneven.nc")
    job = job_file(data={"path": str(path), "test": None}, crop={"symmetries": symmetries})
    with pytest.raises(ConfigError, match="x has uneven nodes"):
        prepare(load_config(SuperresolutionConfig, job))


def test_a_stopped_prediction_keeps_its_parts_and_goes_on(coarse, tmp_path, monkeypatch):
    nodes = prediction.refined_nodes(coarse)
    options = {"chunk": 24, "about": {"model": "a"}}  # a block is one time
    stream(coarse, nodes, tmp_path / "whole.nc", **options)
    monkeypatch.setattr(prediction, "PART_BYTES", 1)
    save, kept = Parts.save, []

    def stopping(self, number, arrays):
        save(self, number, arrays)
        kept.append(number)
        if len(kept) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(Parts, "save", stopping)
    with pytest.raises(KeyboardInterrupt):
        stream(coarse, nodes, tmp_path / "cut.nc", **options)
    assert kept == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match="other model"):
        stream(coarse, nodes, tmp_path / "cut.nc", chunk=24, about={"model": "b"})
    stream(coarse, nodes, tmp_path / "cut.nc", **options)
    assert kept == list(range(17))
    with xr.open_dataset(tmp_path / "cut.nc") as a, xr.open_dataset(tmp_path / "whole.nc") as b:
        xr.testing.assert_identical(a.load(), b.load())
    assert not list(tmp_path.glob("*.parts"))

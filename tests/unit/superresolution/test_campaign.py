"""Super-resolution learns from many simulations; a crop is from one of them and no larger."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import yaml
from advected_waves import wave_fields
from prepared_crops import prepare, shape_of

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart
from scitoolkit.io.fields import write_fields
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.crops import CropSource
from scitoolkit.superresolution.simulations import Simulations

LEVEL = 100.0


@pytest.fixture
def campaign(tmp_path):
    """Write simulations of unequal lengths, each about a level far from the others'."""

    def make(count: int = 4, **attributes) -> str:
        for number in range(count):
            data = wave_fields(phase=0.2 * number)
            data = data.isel(t=slice(0, data.sizes["t"] - 2 * number))
            data["u"] = data["u"] + np.float32(LEVEL * number)
            data.attrs |= {name: values[number] for name, values in attributes.items()}
            write_fields(data, tmp_path / f"sim{number}.nc")
        return str(tmp_path / "sim*.nc")

    return make


def plan(job_file, path, **sections):
    sections = {"pde": {"equations": {}, "weight": 0}, **sections}
    made = job_file(data={"path": path, "test": None}, **sections)
    return prepare(load_config(SuperresolutionConfig, made))


SPLIT = {"train": 2, "validation": 1, "test": 1}


def test_every_crop_is_a_stretch_of_one_simulation_of_its_part(job_file, campaign):
    prepared = plan(job_file, campaign(), split=SPLIT)
    assert prepared.opened.parts == {"train": [0, 1], "validation": [2], "test": [3]}
    config = load_config(
        SuperresolutionConfig,
        job_file(crop={"per_epoch": 200, "symmetries": {"shift": [], "mirror": {}}}),
    )
    source = CropSource(prepared.opened.data, [0, 1], *shape_of(prepared), config.crop)
    batch = source.read(np.arange(200))
    number = np.rint(batch["low"].mean((1, 2, 3)) / LEVEL).astype(int)
    assert set(number) == {0, 1}
    for crop, n, origin in zip(batch["low"], number, batch["origin"], strict=True):
        truth = prepared.opened.data.dataset(n)
        first = int(np.searchsorted(truth["t"].values, origin[0] - 1e-9))
        assert np.array_equal(crop[0], truth["u"].values[first : first + 9 : 4, ::4])
    whole = np.concatenate([prepared.opened.data.dataset(n)["u"].values.ravel() for n in (0, 1)])
    assert prepared.model.mean[0] == pytest.approx(whole.astype("f8").mean())
    assert prepared.model.std[0] == pytest.approx(whole.astype("f8").std())


def test_a_crop_reads_no_more_than_its_box(tmp_path, job_file):
    values = np.random.default_rng(0).normal(size=(12, 256, 384)).astype("f4")
    with h5py.File(tmp_path / "large.h5", "w") as file:
        for dim, size in zip(("t", "y", "x"), values.shape, strict=True):
            file[dim] = np.arange(size, dtype="f8")
            file[dim].make_scale(dim)
        file["u"] = values
        for axis, dim in enumerate(("t", "y", "x")):
            file["u"].dims[axis].attach_scale(file[dim])
    sections = {
        "crop": {
            "size": {"t": 5, "y": 9, "x": 17},
            "every": {"t": 4, "y": 4, "x": 4},
            "symmetries": {"shift": ["x"], "mirror": {}},
        },
        "pde": {"equations": {}, "weight": 0},
    }
    data = {
        "path": str(tmp_path / "large.h5"),
        "test": None,
        "dims": ["t", "y", "x"],
        "periodic": {"x": 384.0},
    }
    config = load_config(SuperresolutionConfig, job_file(data=data, **sections))
    made = prepare(config)
    lazy = Simulations(made.opened.data.opened, False, "")
    source = CropSource(lazy, [0], *shape_of(made), config.crop)
    counter = lazy.opened.rows["u"].counters()[0]
    before = counter.nbytes
    crops = source.read(np.arange(20))
    # Whole lines of x, twice where a crop wraps around; a frame has 256 of them and not 9.
    assert counter.nbytes - before <= 2 * 20 * 5 * 9 * 384 * 4
    again = CropSource(made.opened.data, [0], *shape_of(made), config.crop)
    assert made.opened.data.in_memory
    assert all(np.array_equal(v, crops[k]) for k, v in again.read(np.arange(20)).items())


def test_training_validates_and_is_scored_on_simulations_left_out(job_file, campaign):
    path = job_file(
        data={"path": campaign(5), "test": None},
        pde={"equations": {}, "weight": 0},
        split={"train": 2, "validation": 1, "test": 2},
        training={"batch_size": 8, "epochs": 2, "steps": None},
    )
    run = api.train(path)
    assert '"validation' in (run.path / "metrics.jsonl").read_text()
    results = api.evaluate(run.path)
    table = next(t for t in results.tables if t.title == "Every simulation")
    assert [row[0] for row in table.rows] == ["sim3", "sim4"]
    assert results.metrics["r2_u"] == pytest.approx(np.mean([row[1] for row in table.rows]))
    again = prepare(load_config(SuperresolutionConfig, path))
    assert again.model.mean == prepare(load_config(SuperresolutionConfig, path)).model.mean


def test_constants_of_the_equations_are_those_of_all_simulations(job_file, campaign):
    pde = {"equations": {"advection": "dif(u,t) + nu*dif(u,x)"}, "weight": 0.1}
    with pytest.raises(DataError, match=r"sim2(?s:.)*nu is 0.2, and 0.1 in simulation sim0"):
        plan(job_file, campaign(nu=[0.1, 0.1, 0.2, 0.1], seed=[0, 1, 2, 3]), pde=pde)


def test_what_cannot_be_divided_or_cut_is_refused(job_file, campaign):
    path = campaign()
    with pytest.raises(ConfigError, match="split"):
        plan(job_file, path, split={**SPLIT, "by": "time"})
    with pytest.raises(DataError, match=r"sim1(?s:.)*crop\.size\.t"):
        plan(job_file, path, crop={"size": {}})


def test_a_starter_for_several_files_divides_simulations(tmp_path, campaign):
    text = job_for_task("superres").starter(DataToStart([campaign()], [campaign()]))
    config = yaml.safe_load(text)
    assert config["split"] == {"train": 0.7, "validation": 0.15, "test": 0.15}
    (tmp_path / "own.yaml").write_text(text)
    found = api.check(tmp_path / "own.yaml", [f"run.root={tmp_path}"])
    assert found["samples"] == {"train": 2, "validation": 1, "test": 1}

"""Statistics of a campaign: each row read once, kept, shared by ranks, taken from the Well."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr
import yaml

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.stages import prepare, statistics_of
from scitoolkit.emulation.statistics import find_statistics
from scitoolkit.io.campaign.measure import Question, measure_pieces, merged, pieces_of
from scitoolkit.io.campaign.saved import load_moments
from scitoolkit.io.fields import write_fields

ROWS, X, Y, FILES = 20, 8, 6, 5
PART = FILES * ROWS * X * Y * 4


def values(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4") + seed


def write(path, seed: int) -> None:
    times = {"time": np.arange(ROWS) / 4}
    u = values(seed, ROWS, X, Y)
    write_fields(xr.Dataset({"u": (("time", "x", "y"), u)}, coords=times), path)


@pytest.fixture
def campaign(tmp_path):
    folder = tmp_path / "runs_of_it"
    for i in range(FILES):
        write(folder / f"s{i}.nc", i)
    return folder


@pytest.fixture
def config(job):
    def make(path, **data) -> EmulationConfig:
        section = {"path": str(path), "inputs": ["u"], "outputs": ["u"], **data}
        split = {"train": 1.0, "validation": 0, "test": 0, "by": "simulation"}
        training = {"batch_size": 1}
        return load_config(EmulationConfig, job(section, split=split, training=training))

    return make


def found(config, cache, sample=False):
    """Return statistics and the bytes that they took."""
    data = open_data(config.data)
    blocks = data.blocks
    result = find_statistics(data, blocks, config, cache=cache, sample=sample)
    return result, data.rows[next(iter(data.rows))].counters()[0].nbytes


def test_every_row_is_read_once_and_none_the_second_time(tmp_path, campaign, config):
    job, cache = config(campaign), tmp_path / "cache"
    first, nbytes = found(job, cache)
    assert nbytes == PART
    assert first.source == "measured"
    again, nbytes = found(job, cache)
    assert (nbytes, again.source) == (0, "saved")
    assert again.to_json()["variables"] == first.to_json()["variables"]
    everything = np.concatenate([values(i, ROWS, X, Y) for i in range(FILES)]).astype("f8")
    mean, scale = first.statistics.values["u"]
    assert mean.item() == pytest.approx(everything.mean(), rel=1e-6)
    assert scale.item() == pytest.approx(everything.std(), rel=1e-6)


def test_a_changed_file_replaces_its_own_row(tmp_path, campaign, config):
    job, cache = config(campaign), tmp_path / "cache"
    found(job, cache)
    write(campaign / "s2.nc", 9)
    changed, nbytes = found(job, cache)
    assert nbytes == PART // FILES
    whole, _ = found(job, None)
    assert torch.equal(changed.statistics.values["u"][1], whole.statistics.values["u"][1])
    assert torch.equal(changed.statistics.changes["u"], whole.statistics.changes["u"])


def test_another_split_is_another_measurement(tmp_path, campaign, config):
    job, cache = config(campaign), tmp_path / "cache"
    data = open_data(job.data)
    one = find_statistics(data, data.blocks[:2], job, cache=cache)
    two = find_statistics(data, data.blocks[2:], job, cache=cache)
    assert one.split != two.split
    assert two.source == "measured"


@pytest.mark.parametrize("parts", [False, True])
def test_any_number_of_ranks_finds_the_same_bits(tmp_path, config, parts):
    whole = values(1, 3 * ROWS, X, Y)
    for i in range(3):
        rows = slice(i * ROWS, (i + 1) * ROWS)
        times = np.arange(3 * ROWS)[rows] / 4 if parts else np.arange(ROWS) / 4
        write_fields(
            xr.Dataset({"u": (("time", "x", "y"), whole[rows])}, coords={"time": times}),
            tmp_path / "d" / f"s{i}.nc",
        )
    data = open_data(config(tmp_path / "d").data)
    assert len(data.blocks) == (1 if parts else 3)
    pieces = pieces_of(data.campaign, data.blocks)
    question = Question(lead=1, changes=("u",))
    results = []
    for ranks in (1, 2, 3):
        rows = {}
        for rank in range(ranks):
            rows |= measure_pieces(
                data.campaign, data.rows, dict(enumerate(pieces)), question, share=(rank, ranks)
            )
        joined = merged(data.campaign, pieces, [rows[n] for n in range(len(pieces))], question)
        results.append([joined.values["u"].parts, joined.changes["u"].parts])
    assert all(
        np.array_equal(a, b) for other in results for a, b in zip(results[0], other, strict=True)
    )
    # A change from the last row of one part to the first of the next one counts.
    steps = np.diff(whole.astype("f8"), axis=0)
    steps = steps if parts else np.delete(steps, [ROWS - 1, 2 * ROWS - 1], axis=0)
    assert results[0][1][2].item() == pytest.approx((steps**2).mean(), rel=1e-12)


def test_chunks_over_several_simulations_are_read_once(tmp_path, config):
    import h5py

    u = values(0, 4, ROWS, X, Y)
    with h5py.File(tmp_path / "all.hdf5", "w") as file:
        file.attrs["n_trajectories"], file.attrs["grid_type"] = 4, "cartesian"
        file["dimensions/time"] = np.arange(ROWS, dtype="f4")
        file["dimensions/x"], file["dimensions/y"] = np.arange(X), np.arange(Y)
        made = file.create_dataset("t0_fields/u", data=u, chunks=(2, 3, X, Y), compression="gzip")
        stored = made.id.get_storage_size()
    result, nbytes = found(config(tmp_path / "all.hdf5"), None)
    assert nbytes == stored
    assert result.statistics.values["u"][0].item() == pytest.approx(u.astype("f8").mean(), rel=1e-6)


def test_components_stored_last_are_read_once(tmp_path, config):
    v = values(0, ROWS, X, Y, 2)
    write_fields(xr.Dataset({"u": (("time", "x", "y", "c"), v)}), tmp_path / "v.nc")
    result, nbytes = found(config(tmp_path / "v.nc"), None)
    assert nbytes == v.nbytes
    assert result.statistics.values["u_1"][0].item() == pytest.approx(v[..., 1].mean(), rel=1e-6)


def test_the_wells_own_statistics_need_no_reading(tmp_path, config):
    import h5py

    folder = tmp_path / "set" / "data" / "train"
    folder.mkdir(parents=True)
    with h5py.File(folder / "a.hdf5", "w") as file:
        file.attrs["n_trajectories"], file.attrs["grid_type"] = 2, "cartesian"
        file["dimensions/time"] = np.arange(ROWS, dtype="f4")
        file["dimensions/x"], file["dimensions/y"] = np.arange(X), np.arange(Y)
        file["t1_fields/u"] = values(0, 2, ROWS, X, Y, 2)
    stated = {"mean": {"u": [1.0, 2.0]}, "std": {"u": [3.0, 4.0]}, "rms_delta": {"u": [0.5, 0.25]}}
    (tmp_path / "set" / "stats.yaml").write_text(yaml.safe_dump(stated))
    result, nbytes = found(config(folder), None)
    assert (nbytes, result.source) == (0, "stats.yaml")
    assert [v.item() for v in result.statistics.values["u_1"]] == [2.0, 4.0]
    assert result.statistics.changes["u_0"].item() == 0.5


def test_a_dry_run_reads_next_to_nothing_and_keeps_nothing(tmp_path, campaign, config):
    job = config(campaign)
    prepared = prepare(job, sample=True)
    assert statistics_of(prepared.opened).source == "sample"
    assert prepared.opened.data.source(np.arange(1), [0]).bytes_read <= 0.02 * PART
    assert not list(job.run.root.rglob("*")) if job.run.root.exists() else True


def test_a_run_says_what_it_was_normalised_with(tmp_path, campaign, job):
    path = job(
        {"path": str(campaign), "inputs": ["u"], "outputs": ["u"]},
        training={"steps": 2, "batch_size": 2},
    )
    run = api.train(path)
    stated = yaml.safe_load((run.path / "statistics.json").read_text())
    assert stated["source"] == "measured"
    assert set(stated["variables"]["u"]) == {"mean", "std", "change"}
    again = api.train(path)
    assert yaml.safe_load((again.path / "statistics.json").read_text())["source"] == "saved"
    assert load_moments(run.path / "nothing.npz") == {}

"""One bad simulation among good ones: named, or left out alone and the same on every rank."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign import CampaignOptions, open_campaign
from scitoolkit.io.campaign.leaks import require_no_leak
from scitoolkit.io.campaign.rows import row_sets
from scitoolkit.io.campaign.split import CampaignSplit, split_campaign
from scitoolkit.io.campaign.windows import CampaignWindows
from scitoolkit.io.fields import write_fields

ROWS, X = 8, 16


def write(path, *, rows=ROWS, cells=X, name="u", units="m/s", step=0.5, seed=0):
    u = np.random.default_rng(seed).standard_normal((rows, cells)).astype("f4")
    data = xr.Dataset(
        {name: (("time", "x"), u, {"units": units})},
        coords={"time": step * np.arange(rows), "x": np.arange(cells)},
    )
    return write_fields(data, path)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-200])


def backward(path):
    with xr.open_dataset(path, engine="h5netcdf") as data:
        data = data.load()
    times = data["time"].values.copy()
    times[3] = 0.1
    write_fields(data.assign_coords(time=times), path)


FAULTS = {
    "truncated": (truncate, "damaged or truncated"),
    "empty": (lambda p: p.write_bytes(b""), "empty"),
    "not data": (lambda p: p.write_text("no"), "not recognised"),
    "another variable": (lambda p: write(p, name="v"), "'u' not found"),
    "another unit": (lambda p: write(p, units="km/h"), "unit 'km/h'"),
    "another grid": (lambda p: write(p, cells=9), "'x': 9"),
    "another step": (lambda p: write(p, step=0.25), "time step of 0.25"),
    "no rows": (lambda p: write(p, rows=0), "no rows"),
    "times backward": (backward, "goes backward at row 3"),
}


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_simulation_is_named_or_left_out(tmp_path, fault, at):
    for i in range(5):
        write(tmp_path / f"s{i}.nc", seed=i)
    spoil, message = FAULTS[fault]
    spoil(tmp_path / f"s{at}.nc")
    if at:  # of the first one the others differ
        with pytest.raises(DataError, match=message) as caught:
            open_campaign(tmp_path, ["u"])
        assert f"s{at}" in str(caught.value)
    found = open_campaign(tmp_path, ["u"], CampaignOptions(on_error="skip"))
    assert found.labels == tuple(f"s{i}" for i in range(5) if i != at)
    assert [f"s{at}" in name for name in found.skipped] == [True]
    assert message in next(iter(found.skipped.values()))
    source = CampaignWindows(found, row_sets(found), np.arange(found.index.num_rows), [0])
    truth = [
        np.random.default_rng(i).standard_normal((ROWS, X)).astype("f4")
        for i in range(5)
        if i != at
    ]
    assert np.array_equal(source.read(np.arange(len(source)))["u"][:, 0], np.concatenate(truth))


def test_a_copy_is_named_when_it_leaks_and_left_out_when_asked(tmp_path):
    for i in range(4):
        write(tmp_path / f"s{i}.nc", seed=i)
    shutil.copy(tmp_path / "s0.nc", tmp_path / "s9.nc")
    found = open_campaign(tmp_path, ["u"])
    parts = split_campaign(
        found.index, 2, CampaignSplit(train=3, validation=1, test=1), own_test=True
    )
    with pytest.raises(DataError, match="s9 is a copy of simulation s0") as caught:
        require_no_leak(found, parts)
    assert "train part" in str(caught.value)
    assert "test part" in str(caught.value)
    left = open_campaign(tmp_path, ["u"], CampaignOptions(on_error="skip"))
    assert left.labels == ("s0", "s1", "s2", "s3")
    assert left.skipped == {"s9": "a copy of simulation s0"}


def test_overlapping_parts_are_refused(tmp_path):
    write(tmp_path / "s.nc")
    found = open_campaign(tmp_path / "s.nc", ["u"])
    with pytest.raises(DataError, match="in both the train and the test part") as caught:
        require_no_leak(found, {"train": [range(5)], "validation": [], "test": [range(4, 8)]})
    assert "simulation s, row 4" in str(caught.value)


def test_a_step_that_is_missing_leaves_its_simulation_out(tmp_path):
    for run in range(3):
        for step in range(4):
            data = xr.Dataset({"u": (("x",), np.full(X, run, "f4"))})
            write_fields(data, tmp_path / f"run{run}_t{step}.nc")
    truncate(tmp_path / "run1_t2.nc")
    pattern = "run{simulation}_t{step}.nc"
    found = open_campaign(tmp_path, ["u"], CampaignOptions(pattern=pattern, on_error="skip"))
    assert found.labels == ("0", "2")


def test_a_file_changed_while_it_is_read_is_named(tmp_path):
    for i in range(3):
        write(tmp_path / f"s{i}.nc", seed=i)
    found = open_campaign(tmp_path, ["u"])
    truncate(tmp_path / "s1.nc")
    source = CampaignWindows(found, row_sets(found), np.arange(found.index.num_rows), [0])
    with pytest.raises(DataError, match=r"s1\.nc.*had"):
        source.read(np.arange(len(source)))


def test_an_index_is_renewed_file_by_file(tmp_path, monkeypatch):
    from scitoolkit.io.campaign import cache as cache_module

    for i in range(4):
        write(tmp_path / "d" / f"s{i}.nc", seed=i)
    read = []
    whole = cache_module.read_headers
    monkeypatch.setattr(cache_module, "read_headers", lambda p: read.append(list(p)) or whole(p))
    for _ in range(2):
        found = open_campaign(tmp_path / "d", ["u"], cache=tmp_path / "c")
    assert len(read) == 1
    write(tmp_path / "d" / "s2.nc", rows=11)
    found = open_campaign(tmp_path / "d", ["u"], cache=tmp_path / "c")
    assert read[1] == [str(tmp_path / "d" / "s2.nc")]
    assert np.diff(found.index.bounds).tolist() == [ROWS, ROWS, 11, ROWS]
    for file in (tmp_path / "c").iterdir():
        file.write_text("{")
    assert open_campaign(tmp_path / "d", ["u"], cache=tmp_path / "c").labels == found.labels

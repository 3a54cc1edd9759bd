"""Restarts and longer copies of a run under other names do not reach two parts of a split."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import scitoolkit
from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.leaks import require_no_leak
from scitoolkit.io.campaign.measure import Question, keys_of, measure_pieces, merged, pieces_of

STATES = np.random.default_rng(0).random((20, 5, 6), np.float32)
HOURS = {"units": "hours since 2000-01-01"}


def write(path, rows, values=STATES, attrs=HOURS, first=0):
    times = ("time", np.arange(rows.start, rows.stop) + float(first), attrs)
    data = xr.Dataset({"u": (("time", "y", "x"), values[rows])}, {"time": times})
    data.to_netcdf(path, engine="h5netcdf")


def check(folder, **sizes):
    campaign = scitoolkit.open_campaign(folder)
    sizes = sizes or {"train": 1, "validation": 0, "test": 1}
    require_no_leak(campaign.found, campaign.split(**sizes))


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        (("run", "run_restart"), (slice(0, 11), slice(10, 20))),
        (("out_a", "continued"), (slice(0, 11), slice(8, 20))),
        (("first", "longer"), (slice(0, 11), slice(0, 20))),
    ],
)
@pytest.mark.parametrize(
    "attrs",
    # The second file begins where datetime64[ns] does, the first before it.
    [HOURS, {}, {"units": "days since 1500-01-01"}, {"units": "days since 1677-09-15"}],
)
def test_rows_of_one_solution_are_in_one_part(tmp_path, names, rows, attrs):
    for name, part in zip(names, rows, strict=True):
        write(tmp_path / f"{name}.nc", part, attrs=attrs)
    with pytest.raises(DataError, match="as a restart does"):
        check(tmp_path)


def test_the_reference_of_the_times_does_not_matter(tmp_path):
    write(tmp_path / "run.nc", slice(0, 11))
    days = {"units": "hours since 1999-12-31"}
    write(tmp_path / "again.nc", slice(10, 20), attrs=days, first=24)
    with pytest.raises(DataError, match="as a restart does"):
        check(tmp_path)


@pytest.mark.parametrize("rest", [0, np.nan])
def test_other_solutions_and_equal_rests_are_no_restarts(tmp_path, rest):
    for number in range(4):
        values = np.random.default_rng(number).random((20, 5, 6), np.float32)
        values[-1] = rest
        write(tmp_path / f"run{number}.nc", slice(0, 20), values)
    check(tmp_path, train=2, validation=1, test=1)


@pytest.mark.parametrize("kind", ["nc", "zarr", "packed", "static"])
@pytest.mark.parametrize("attrs", [HOURS, {}])
def test_equal_rows_of_parts_are_read_once(tmp_path, kind, attrs, caplog):
    """Three parts by their numbers, of which each holds the last rows of the one before again."""
    for number, rows in enumerate((slice(0, 11), slice(10, 16), slice(13, 20))):
        times = ("time", np.arange(rows.start, rows.stop) + 0.0, attrs)
        fields = {"u": (("time", "y", "x"), STATES[rows])}
        if kind == "static":
            fields["h"] = (("y", "x"), STATES[0])
        data = xr.Dataset(fields, {"time": times})
        path = tmp_path / f"run_{number:02d}.{'zarr' if kind == 'zarr' else 'nc'}"
        if kind == "zarr":
            data.to_zarr(path, consolidated=False)
        elif kind == "packed":
            data.u.attrs["_FillValue"] = np.float32(-1)
            data.to_netcdf(path, engine="h5netcdf", encoding={"u": {"chunksizes": (4, 5, 6)}})
        else:
            data.to_netcdf(path, engine="h5netcdf")
    with caplog.at_level("INFO"):
        campaign = scitoolkit.open_campaign(tmp_path, ["u"])
    told = [r.getMessage() for r in caplog.records if "holds again with the same" in r.getMessage()]
    assert [text.split("its last ")[1].split()[0] for text in told] == ["1", "3"]
    first = campaign.dataset(0)
    np.testing.assert_array_equal(first.u.values, STATES)
    assert first.sizes["time"] == 20
    assert campaign.found.index.num_simulations == 1
    batch = next(iter(campaign.loader(19, shuffle=False)))
    np.testing.assert_array_equal(batch["y"].numpy()[:, 0, 0], STATES[1:])
    saved = scitoolkit.open_campaign(tmp_path, ["u"], cache=tmp_path / "index")
    again = scitoolkit.open_campaign(tmp_path, ["u"], cache=tmp_path / "index")
    for one in (saved, again):
        np.testing.assert_array_equal(one.dataset(0).time.values, first.time.values)


def test_rows_that_differ_between_parts_are_refused(tmp_path):
    other = STATES.copy()
    other[12, 3, 2] += 1e-6
    write(tmp_path / "run_0.nc", slice(0, 13))
    write(tmp_path / "run_1.nc", slice(10, 20), other)
    for options in ({}, {"files": "parts"}):
        with pytest.raises(DataError, match="as a restart does, but row 2 of u has other values"):
            scitoolkit.open_campaign(tmp_path, **options)
    assert scitoolkit.open_campaign(tmp_path, files="simulations").found.index.num_rows == 23


TWICE = np.r_[0:11, 8:14, 13:20]
"""Steps of a file in which a run was continued from step 8, and then from step 13."""


def write_twice(path, kind, values=None):
    fields = {
        "u": (("time", "y", "x"), STATES[TWICE] if values is None else values),
        "h": (("y", "x"), STATES[0]),
    }
    # A restart adds up its steps again: its times are the same but for their last digits.
    times = TWICE - 1e-9 * np.arange(len(TWICE))
    data = xr.Dataset(fields, {"time": ("time", times, HOURS)})
    if kind == "zarr":
        data.to_zarr(path, consolidated=False)
    else:
        chunks = {"u": {"chunksizes": (4, 5, 6), "zlib": True}} if kind == "chunked" else {}
        data.to_netcdf(path, engine="h5netcdf", encoding=chunks)


@pytest.mark.parametrize("kind", ["nc", "chunked", "zarr"])
def test_equal_rows_within_a_file_are_read_once(tmp_path, kind, caplog):
    write_twice(tmp_path / f"run.{'zarr' if kind == 'zarr' else 'nc'}", kind)
    with caplog.at_level("INFO"):
        campaign = scitoolkit.open_campaign(tmp_path, ["u", "h"], cache=tmp_path / "index")
    told = [r.getMessage() for r in caplog.records if "holds again with the same" in r.getMessage()]
    assert ["rows 8 to 10" in told[0], "rows 16 to 16" in told[1]] == [True, True]
    assert campaign.found.index.num_simulations == 1
    again = scitoolkit.open_campaign(tmp_path, ["u", "h"], cache=tmp_path / "index")
    for one in (campaign, again):
        whole = one.dataset(0)
        np.testing.assert_array_equal(whole.u.values, STATES)
        np.testing.assert_array_equal(whole.h.values, np.broadcast_to(STATES[0], STATES.shape))
        hours = np.diff(whole.time.values) / np.timedelta64(1, "h")
        np.testing.assert_allclose(hours, 1, rtol=1e-6)
        batch = next(iter(one.loader(19, shuffle=False)))
        np.testing.assert_array_equal(batch["x"].numpy()[:, 0, 0], STATES[:-1])
        np.testing.assert_array_equal(batch["y"].numpy()[:, 0, 0], STATES[1:])
        rows = one.rows["u"]
        np.testing.assert_array_equal(
            rows.part(13, 20, (slice(1, 3), slice(0, 2))), STATES[13:, 1:3, :2]
        )


def test_statistics_count_rows_that_a_file_holds_twice_once(tmp_path):
    write_twice(tmp_path / "run.nc", "nc")
    campaign = scitoolkit.open_campaign(tmp_path, ["u"])
    pieces, question = pieces_of(campaign.found, campaign.found.index.blocks), Question()
    assert len(set(keys_of(campaign.found, pieces, question))) == len(pieces) == 3
    parts = measure_pieces(campaign.found, campaign.rows, dict(enumerate(pieces)), question)
    rows = [parts[number] for number in range(len(pieces))]
    moments = merged(campaign.found, pieces, rows, question).values["u"]
    states = STATES.astype(np.float64)
    np.testing.assert_allclose(np.ravel(moments.result()), [states.mean(), states.std()], rtol=1e-6)


def test_rows_that_differ_within_a_file_are_refused(tmp_path):
    values = STATES[TWICE].copy()
    values[12, 3, 2] += 1e-6
    write_twice(tmp_path / "run.nc", "nc", values)
    said = r"goes backward at row 11, as after a restart, but u has other values in row 12 than"
    with pytest.raises(DataError, match=said):
        scitoolkit.open_campaign(tmp_path, ["u"])
    assert scitoolkit.open_campaign(tmp_path, ["u"], lead=0).found.index.num_rows == 24


@pytest.mark.parametrize("steps", [np.r_[0:11, 3:5], np.r_[0:6, 2.5:6.5], np.r_[5:10, 0:8]])
def test_times_that_do_not_continue_what_they_repeat_are_refused(tmp_path, steps):
    values = np.zeros((len(steps), 5, 6))
    data = xr.Dataset({"u": (("time", "y", "x"), values)}, {"time": ("time", steps, HOURS)})
    data.to_netcdf(tmp_path / "run.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="goes backward"):
        scitoolkit.open_campaign(tmp_path, ["u"])


@pytest.mark.parametrize("second", [slice(18, 25), slice(20, 25)])
def test_a_file_that_holds_rows_twice_is_continued_by_another(tmp_path, second):
    states = np.random.default_rng(1).random((25, 5, 6), np.float32)
    for name, steps in (("run_0", TWICE), ("run_1", np.arange(25)[second])):
        fields = {"u": (("time", "y", "x"), states[steps])}
        data = xr.Dataset(fields, {"time": ("time", steps + 0.0, HOURS)})
        data.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
    campaign = scitoolkit.open_campaign(tmp_path, ["u"])
    assert campaign.found.index.num_simulations == 1
    np.testing.assert_array_equal(campaign.dataset(0).u.values, states)


def test_in_one_part_they_are_read(tmp_path):
    write(tmp_path / "run.nc", slice(0, 11))
    write(tmp_path / "run_restart.nc", slice(10, 20))
    write(tmp_path / "other.nc", slice(0, 20), STATES[::-1])
    check(tmp_path, train=3, validation=0, test=0)

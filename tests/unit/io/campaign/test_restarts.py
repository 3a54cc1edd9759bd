"""Restarts and longer copies of a run under other names do not reach two parts of a split."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import scitoolkit
from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.leaks import require_no_leak

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


def test_in_one_part_they_are_read(tmp_path):
    write(tmp_path / "run.nc", slice(0, 11))
    write(tmp_path / "run_restart.nc", slice(10, 20))
    write(tmp_path / "other.nc", slice(0, 20), STATES[::-1])
    check(tmp_path, train=3, validation=0, test=0)

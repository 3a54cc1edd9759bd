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


def test_in_one_part_they_are_read(tmp_path):
    write(tmp_path / "run.nc", slice(0, 11))
    write(tmp_path / "run_restart.nc", slice(10, 20))
    write(tmp_path / "other.nc", slice(0, 20), STATES[::-1])
    check(tmp_path, train=3, validation=0, test=0)

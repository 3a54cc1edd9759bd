"""Times of predictions: by the calendar, and of any year."""

from __future__ import annotations

import cftime
import numpy as np
import pytest
import xarray as xr

from scitoolkit import api
from scitoolkit.io.dates import moved
from scitoolkit.io.fields import write_fields


def dated(path, times):
    u = np.random.default_rng(0).normal(size=(len(times), 8)).astype("f4")
    field = ("time", "x"), u, {"units": "m/s"}
    encoding = {"units": "days since 1500-01-01", "calendar": "standard", "dtype": "f8"}
    data = xr.Dataset({"u": field}, {"time": ("time", times), "x": np.arange(8.0)})
    data.time.encoding.update(encoding)
    return write_fields(data, path)


@pytest.fixture
def trained_on(job, tmp_path):
    def make(times):
        data = {"path": str(dated(tmp_path / "train.nc", times)), "inputs": ["u"], "outputs": ["u"]}
        split = {"by": "time", "train": 16, "validation": 4, "test": 4}
        model, training = {"name": "unet", "widths": [4]}, {"steps": 1, "batch_size": 2}
        rollout = {"predict": 2, "long": 0}
        sections = {"split": split, "model": model, "training": training, "rollout": rollout}
        return api.train(job(data, boundary={"x": "circular"}, **sections)).path

    return make


def predicted(run, source, out, **options):
    coder = xr.coders.CFDatetimeCoder(use_cftime=True)
    path = api.predict(run, source, out, **options)
    with xr.open_dataset(path, decode_times=coder) as file:
        return [t.isoformat()[:10] for t in file.indexes["time"]]


@pytest.mark.parametrize("first", ["1500-01-30", "1677-09-22", "1999-12-30", "2262-04-09"])
def test_days_of_any_year(trained_on, tmp_path, first):
    """Where datetime64[ns] begins and ends, sums of dates and steps wrap around."""
    year, month, day = map(int, first.split("-"))
    begin = cftime.DatetimeGregorian(year, month, day)
    days = cftime.num2date(np.arange(6), f"days since {begin.isoformat()[:10]}", "standard")
    expected = [d.isoformat()[:10] for d in days]
    run = trained_on(np.datetime64("2001-01-01", "ns") + np.arange(24) * np.timedelta64(1, "D"))
    two, one = (dated(tmp_path / f"{n}.nc", days[:n]) for n in (2, 1))
    assert predicted(run, two, tmp_path / "a.nc") == expected[2:4]
    assert predicted(run, two, tmp_path / "b.nc", steps=0) == expected[1:3]
    assert predicted(run, one, tmp_path / "c.nc") == expected[1:3]
    assert predicted(run, one, tmp_path / "d.nc", steps=0) == expected[1:2]


def test_months_are_steps_of_the_calendar(trained_on, tmp_path):
    months = np.datetime64("2001-01", "M") + np.arange(24)
    run = trained_on(months.astype("M8[ns]"))
    source = dated(tmp_path / "a.nc", months[:4].astype("M8[ns]"))
    expected = months[1:5].astype("M8[D]").astype(str).tolist()
    assert predicted(run, source, tmp_path / "out.nc", steps=0) == expected


@pytest.mark.parametrize("unit", ["ns", "us", "s", "D"])
@pytest.mark.parametrize("days", [-200_000, -1, 1, 200_000])
def test_dates_are_moved_in_any_unit(unit, days):
    dates = np.array(["1700-01-01", "2200-01-01"], f"M8[{unit}]")
    result = moved(dates, np.timedelta64(days, "D").astype("m8[us]"))
    assert (result.astype("M8[D]") == dates.astype("M8[D]") + days).all()

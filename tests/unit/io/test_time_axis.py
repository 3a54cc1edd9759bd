from __future__ import annotations

import cftime
import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.time_axis import read_time_axis


def _field(times):
    return xr.DataArray(np.zeros(len(times)), dims="time", coords={"time": times})


def test_months_are_even_and_a_missing_one_is_a_breakpoint():
    months = np.arange("1999-01", "2002-01", dtype="M8[M]").astype("M8[ns]")
    assert read_time_axis(_field(months)).breakpoints == ()
    (breakpoint,) = read_time_axis(_field(np.delete(months, 7))).breakpoints
    assert (breakpoint.index, breakpoint.expected, breakpoint.actual) == (7, 31.0, 62.0)


def test_two_conventions_of_the_week_meet_in_a_breakpoint():
    first = np.arange("1989-11-05", "1989-12-31", 7, dtype="M8[D]")
    second = np.arange("1990-01-03", "1990-03-01", 7, dtype="M8[D]")
    axis = read_time_axis(_field(np.concatenate([first, second]).astype("M8[ns]")))
    assert axis.step == 7.0
    assert axis.breakpoint_indices == (len(first),)


@pytest.mark.parametrize(("calendar", "days"), [("noleap", 365), ("360_day", 360)])
def test_the_phase_is_of_the_files_own_year(calendar, days):
    times = [cftime.datetime(2004, m, 1, calendar=calendar) for m in range(1, 13)]
    axis = read_time_axis(_field(times))
    assert axis.calendar == calendar
    assert axis.phases[0] == 0.0
    assert axis.phases[1] == pytest.approx((31 if days == 365 else 30) / days)
    assert axis.years.tolist() == [2004] * 12


def test_leap_years_are_longer():
    axis = read_time_axis(_field(np.array(["2003-02-01", "2004-02-01"], "M8[ns]")))
    np.testing.assert_allclose(axis.phases, [31 / 365, 31 / 366])


def test_numbers_and_counted_steps_have_no_phase():
    axis = read_time_axis(_field([0.0, 0.1, 0.2, 0.5]))
    assert axis.phases is None
    assert axis.breakpoint_indices == (3,)
    assert read_time_axis(xr.DataArray(np.zeros(3), dims="time")).days.tolist() == [0, 1, 2]


def test_one_step_is_no_series():
    with pytest.raises(DataError, match=r"1 time step. Allowed: 2 or more"):
        read_time_axis(_field(np.array(["2003-02-01"], "M8[ns]")))

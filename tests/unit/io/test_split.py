from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.split import SPLITS, SplitConfig, blocked_split, window_starts


@given(
    n=st.integers(30, 200),
    inputs=st.integers(1, 4),
    leads=st.integers(0, 3),
    gap=st.integers(0, 4),
    breakpoints=st.lists(st.integers(1, 29), max_size=2),
)
def test_no_step_is_in_two_parts_and_no_window_crosses_a_breakpoint(
    n, inputs, leads, gap, breakpoints
):
    config = SplitConfig(train=0.5, validation=0.25, test=0.25, gap=gap)
    try:
        split = blocked_split(n, inputs, leads, config, breakpoints=breakpoints)
    except ConfigError:
        return
    used = {
        name: {s + k for s in split.starts[name].tolist() for k in range(inputs + leads)}
        for name in SPLITS
    }
    for first, second in (("train", "validation"), ("validation", "test")):
        assert max(used[first]) + gap < min(used[second])
    assert max(used["test"]) < n
    for starts in split.starts.values():
        for s in breakpoints:
            assert not ((starts < s) & (s < starts + inputs + leads)).any()


def test_a_random_split_says_why_not():
    config = SplitConfig(name="random")
    with pytest.raises(ConfigError, match=r"\.98 with a test score of \.72"):
        blocked_split(50, 4, 2, config)
    forced = blocked_split(50, 4, 2, config.model_copy(update={"force": True}))
    every = np.concatenate(list(forced.starts.values()))
    assert forced.steps is None
    assert len(set(every.tolist())) == len(every)


def test_dates_divide():
    times = xr.DataArray(np.arange("2001-01", "2003-01", dtype="M8[M]"), dims="time")
    config = SplitConfig(validation_start="2002-01-01", test_start="2002-07-01", gap=1)
    split = blocked_split(24, 2, 1, config, times=times)
    assert split.steps == {"train": range(11), "validation": range(12, 17), "test": range(18, 24)}
    late = SplitConfig(validation_start="2002-01", test_start="2010-01")
    with pytest.raises(DataError, match="not inside the series"):
        blocked_split(24, 2, 1, late, times=times)
    with pytest.raises(ConfigError, match="requires a field with dates"):
        blocked_split(24, 2, 1, config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (SplitConfig(train=20, validation=5, test=10), "more than the series has"),
        (SplitConfig(train=0.9, validation=0.05, test=0.05), "no complete window of 3"),
    ],
)
def test_a_split_that_does_not_fit_is_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        blocked_split(30, 3, 1, config)


def test_bad_sizes_are_refused():
    for bad in ({"train": 0.9, "test": 0.3}, {"train": 1.5}, {"test_start": "2001-01-01"}):
        with pytest.raises(ValueError, match=r"fraction|both"):
            SplitConfig(**bad)
    with pytest.raises(ConfigError, match="window"):
        window_starts(range(5), 0, 1)


def test_dates_of_the_files_own_calendar_divide():
    import cftime

    dates = [cftime.datetime(2001, m, 30, calendar="360_day") for m in range(1, 13)]
    times = xr.DataArray(dates, dims="time")
    config = SplitConfig(validation_start="2001-02-30", test_start="2001-07")
    split = blocked_split(12, 1, 0, config, times=times)
    assert split.steps["validation"] == range(1, 6)
    bad = SplitConfig(validation_start="spring", test_start="2001-07")
    with pytest.raises(ConfigError, match="'spring' is not a date"):
        blocked_split(12, 1, 0, bad, times=times)


def test_the_time_of_day_counts_in_every_calendar():
    import cftime

    hours = [cftime.datetime(2001, 2, 29 + h // 24, h % 24, calendar="360_day") for h in range(48)]
    dates = {"validation_start": "2001-02-29T12", "test_start": "2001-02-30T06:30"}
    split = blocked_split(48, 1, 1, SplitConfig(**dates), times=xr.DataArray(hours, dims="time"))
    assert split.steps is not None
    assert [split.steps[name].start for name in SPLITS] == [0, 12, 31]
    for bad in ("2001-02-29T1:2:3:4", "2001-02-29-01", "2001-02-29T12Z"):
        with pytest.raises(ConfigError, match="is not a date"):
            blocked_split(
                48,
                1,
                1,
                SplitConfig(**dates | {"test_start": bad}),
                times=xr.DataArray(hours, dims="time"),
            )

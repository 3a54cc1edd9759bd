"""Series and windows: the input of all forecasters.

A series has values (time, channel), where a channel is a POD mode or a grid cell, and the decimal
year of every step. The season of a step is the elapsed fraction of its calendar year. It is never
computed by counting steps, because records have gaps and leap days.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scitoolkit.core.errors import DataError

Array = NDArray[np.float64]


class TimeSeries(NamedTuple):
    """Time series, or a stretch of one.

    Attributes:
        values: (time, channel).
        years: (time,) decimal years; all NaN if the record has no calendar.
    """

    values: Array
    years: Array


@dataclass(frozen=True)
class Windows:
    """Windows of a series: consecutive input steps followed by the steps to forecast.

    Attributes:
        series: the record; its values may end after the last input, its years must cover the leads.
        starts: (window,) first step of every window.
        inputs: number of input steps.
        leads: number of forecast steps.

    Example:
        >>> series = TimeSeries(np.arange(12.0)[:, None], np.full(12, np.nan))
        >>> windows = all_windows(series, inputs=4, leads=2)
        >>> len(windows), windows.lagged(0)[:2, 0], windows.targets()[0, :, 0]
        (7, array([3., 4.]), array([4., 5.]))
    """

    series: TimeSeries
    starts: NDArray[np.int64]
    inputs: int
    leads: int

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.starts)

    def take(self, which: slice | NDArray[Any]) -> Windows:
        """Return the selected windows."""
        return Windows(self.series, self.starts[which], self.inputs, self.leads)

    def lagged(self, lag: int) -> Array:
        """Return the input `lag` steps before the last one, (window, channel)."""
        return self.series.values[self.starts + self.inputs - 1 - lag]

    def input_values(self) -> Array:
        """Return the inputs, (window, inputs, channel)."""
        return self.series.values[self.starts[:, None] + np.arange(self.inputs)]

    def targets(self) -> Array:
        """Return the true values at the leads, (window, lead, channel)."""
        return self.series.values[self.starts[:, None] + self.inputs + np.arange(self.leads)]

    def input_years(self) -> Array:
        """Return the decimal years of the inputs, (window, inputs)."""
        return self.series.years[self.starts[:, None] + np.arange(self.inputs)]

    def output_years(self) -> Array:
        """Return the decimal years of the leads, (window, lead)."""
        return self.series.years[self.starts[:, None] + self.inputs + np.arange(self.leads)]

    def with_values(self, values: Array) -> Windows:
        """Return the same windows with other values on the same time axis."""
        return Windows(TimeSeries(values, self.series.years), self.starts, self.inputs, self.leads)


def all_windows(series: TimeSeries, inputs: int, leads: int, *, what: str = "series") -> Windows:
    """Return all windows of a series, with a stride of one step.

    Args:
        series: stretch without gaps.
        inputs: number of input steps.
        leads: number of forecast steps.
        what: name of the series, for messages.

    Raises:
        DataError: the series is too short for a single window.
    """
    count = len(series.values) - inputs - leads + 1
    if count < 1:
        raise DataError(
            f"{what} has {len(series.values)} steps, too few for one window",
            allowed=f"at least {inputs + leads} steps (inputs {inputs} + leads {leads})",
            fix="a longer file, or smaller `inputs` and `leads`",
        )
    return Windows(series, np.arange(count), inputs, leads)


def join_windows(parts: Sequence[Array]) -> Array:
    """Concatenate arrays (window, ...) of several stretches."""
    return np.concatenate(list(parts), axis=0)


def blocked_folds(
    segments: Sequence[TimeSeries], folds: int, gap: int, shortest: int
) -> Iterator[tuple[list[TimeSeries], TimeSeries]]:
    """Yield (training stretches, held-out block) for contiguous blocks of the longest stretch.

    Windows overlap, so a random split would place nearly identical windows in both parts and
    reward overfitting; whole blocks of time are held out instead.

    Args:
        segments: stretches of the record without gaps.
        folds: number of blocks of the longest stretch.
        gap: number of steps omitted on both sides of the held-out block.
        shortest: minimum length of training stretches of the longest stretch.
    """
    longest = max(range(len(segments)), key=lambda i: len(segments[i].values))
    whole = segments[longest]
    edges = np.linspace(0, len(whole.values), folds + 1).astype(int)
    others = [s for i, s in enumerate(segments) if i != longest]
    for begin, end in pairwise(edges):
        pieces = (slice(0, max(0, begin - gap)), slice(end + gap, None))
        train = [TimeSeries(whole.values[p], whole.years[p]) for p in pieces]
        train = [s for s in train if len(s.values) >= shortest] + others
        yield train, TimeSeries(whole.values[begin:end], whole.years[begin:end])

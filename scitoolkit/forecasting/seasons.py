"""Seasons of a series: which periods it has, and the clock that counts them.

Without other seasons the clock of a series is its decimal year, whose fraction is the phase of the
year. With seasons it counts periods of the first one, so that climatologies work on any period; the
others are cosines and sines with effects that are removed before and added after forecasting, as
those of drivers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from logging import Logger

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.forecasting.forecasters.climatology import resolvable_harmonics
from scitoolkit.forecasting.windows import Array
from scitoolkit.io.calendar_steps import WEEKDAY, calendar_steps
from scitoolkit.io.facts import is_dates, seconds_of

log: Logger = get_logger(__name__)

HARMONICS = 6
"""Most harmonics of each season after the first."""
FOLDS = 4
GAIN = 0.01
"""Least share by which a season lowers the squared error on held-out blocks of time."""
FEWEST = 3
"""Periods of a season that a train part has to hold."""
_YEAR, _WEEK = 365.2425, 7.0
_PEAKS = 4
_AROUND = 6
"""Frequencies on either side with which a peak is compared."""
_APART = 0.25
"""Distance in frequencies of the spectrum below which two periods are the same."""
CHANCE = 1e-4
"""Probability with which the spectrum of noise has a peak that is taken for a season."""
_FINEST = 3.0
"""Steps of the shortest period that is looked for."""


def step_numbers(times: np.ndarray) -> Array:
    """Return times (T,) as numbers of steps since a fixed date, or since 0 for numbers.

    Two files of one step count alike, so that a season keeps its phase.

    Example:
        >>> numbers = step_numbers(np.array(["1970-02-01", "1970-03-01", "1970-04-01"], "M8[s]"))
        >>> np.diff(numbers).tolist()
        [1.0, 1.0]
    """
    if is_dates(times):
        steps = calendar_steps(times)
        if steps is not None:
            return steps.counts / float(steps.step)
        times = seconds_of(times)
    numbers = np.asarray(times, np.float64)
    return numbers / float(np.median(np.diff(numbers)))


def clock(times: np.ndarray, seasons: Sequence[float], ahead: int = 0) -> Array:
    """Return the periods of the first season (T + ahead,) at times and at the steps after them.

    Args:
        times: (T,) of the field.
        seasons: periods in steps, at least one.
        ahead: number of steps after the last time.
    """
    return _with_steps_ahead(times, ahead) / seasons[0]


def cycles(times: np.ndarray, seasons: Sequence[float], ahead: int = 0) -> Array:
    """Return cosines and sines (T + ahead, column) of all seasons but the first."""
    steps = _with_steps_ahead(times, ahead)
    columns = [np.zeros((len(steps), 0))]
    for period in seasons[1:]:
        angle = 2 * np.pi * steps[:, None] * np.arange(1, harmonics_of(period) + 1) / period
        columns += [np.cos(angle), np.sin(angle)]
    return np.concatenate(columns, axis=1)


def harmonics_of(period: float) -> int:
    """Return the number of harmonics of a season with a period in steps."""
    return max(1, min(HARMONICS, int((period - 1) // 2)))


def _with_steps_ahead(times: np.ndarray, ahead: int) -> Array:
    steps = step_numbers(times)
    return np.concatenate([steps, steps[-1] + np.arange(1, ahead + 1)])


def find_seasons(
    wanted: str | Sequence[float], times: np.ndarray, years: Array, values: Array
) -> tuple[float, ...]:
    """Return the periods of the seasons in steps, the main one first; () for the calendar's year.

    A season is used if it lowers the error of the mean (and of the seasons before it) on held-out
    blocks of time by 1 %, so that slow random swings are no seasons.

    Args:
        wanted: periods in steps; `calendar` for those that dates have (year, day, week), or
            `search` for periods that stand out in the spectrum too.
        times: (T,) of the train part.
        years: (T,) decimal years, NaN without dates.
        values: (T, cell) of the train part.

    Raises:
        ConfigError: a period that the train part does not hold three times.
    """
    steps = step_numbers(times)
    length = float(steps[-1] - steps[0]) + 1
    if not isinstance(wanted, str):
        for period in wanted:
            if not 2 <= period <= length / FEWEST:
                raise ConfigError(
                    f"a season of {period:g} steps",
                    where="season",
                    allowed=f"2 to {length / FEWEST:.0f} steps: the train part has {length:.0f}",
                )
        return tuple(float(period) for period in wanted)
    dated = bool(np.isfinite(years).all())
    annual = dated and resolvable_harmonics(years) > 0
    day, year = _steps_a_day_and_year(times, steps) if dated else (0.0, 0.0)
    week = _WEEK * day
    candidates = [period for period in (day, week) if period >= _FINEST]
    first = [year] if annual else []
    accepted = _accepted(candidates, first, steps, values)
    if wanted == "search":
        accepted = _searched(accepted, first, steps, values)
    if not accepted:
        return ()
    seasons = (*first, *accepted)
    text = ", ".join(f"{period:.6g}" for period in seasons)
    log.info("seasons of %s steps, by the error on held-out blocks of time", text)
    return seasons


def _steps_a_day_and_year(times: np.ndarray, steps: Array) -> tuple[float, float]:
    """Return the number of steps in a day and in a year, both as `step_numbers` counts them."""
    seconds = seconds_of(times)
    day = 86400 * float(steps[-1] - steps[0]) / float(seconds[-1] - seconds[0])
    counted = calendar_steps(times)
    if counted is None:
        return day, _YEAR * day
    if counted.unit == WEEKDAY:
        return 5 / _WEEK, _YEAR * 5 / _WEEK
    return day, float(round(_YEAR * day))


def _accepted(
    candidates: Sequence[float], first: Sequence[float], steps: Array, values: Array
) -> list[float]:
    accepted: list[float] = []
    length = steps[-1] - steps[0] + 1
    for period in candidates:
        if period <= length / FEWEST and _lowers_error(period, [*first, *accepted], steps, values):
            accepted.append(period)
    return accepted


def _searched(
    accepted: list[float], first: Sequence[float], steps: Array, values: Array
) -> list[float]:
    """Return the accepted periods and those of peaks of the spectrum that pass the test."""
    for _ in range(_PEAKS):
        design = _design([*first, *accepted], steps)
        rest = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
        period = _peak(rest, steps, _FINEST)
        if period is None or not _lowers_error(period, [*first, *accepted], steps, values):
            break
        accepted = [*accepted, period]
    return accepted


def _peak(rest: Array, steps: Array, shortest: float) -> float | None:
    """Return the period in steps of the highest peak of the spectrum above its surroundings."""
    count = round(float(steps[-1] - steps[0])) + 1
    even = np.zeros((count, rest.shape[1]))
    even[np.round(steps - steps[0]).astype(int).clip(0, count - 1)] = rest
    even *= np.hanning(count)[:, None]  # periods that do not divide the length leak otherwise
    power = (np.abs(np.fft.rfft(even, axis=0)) ** 2).sum(axis=1)
    low, high = FEWEST, int(count / shortest)
    if high - low < 8:
        return None
    # Red noise has a high power at all low frequencies: a season stands out of its neighbours.
    padded = np.pad(power, _AROUND, mode="reflect")
    around = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * _AROUND + 1), axis=1)
    ratio = power / np.maximum(around, 1e-300)
    place = low + int(np.argmax(ratio[low:high]))
    # Powers of noise are exponential, so that the largest of many exceeds their median by this.
    if not ratio[place] > np.log((high - low) / CHANCE) / np.log(2):
        return None
    fine = (place + np.linspace(-1, 1, 81)) / count
    waves = np.exp(-2j * np.pi * fine[:, None] * np.arange(count))
    period = 1 / float(fine[np.argmax((np.abs(waves @ even) ** 2).sum(axis=1))])
    if period > count / FEWEST:
        return None
    # A period of whole steps is meant where the spectrum cannot tell the two apart.
    whole = round(period)
    return float(whole) if abs(whole - period) <= _APART * period**2 / count else period


def _lowers_error(period: float, others: Sequence[float], steps: Array, values: Array) -> bool:
    """Return whether a season lowers the squared error on held-out blocks by `GAIN`."""
    without, both = _design(others, steps), _design([*others, period], steps)
    errors = np.zeros(2)
    for begin, end in pairwise(np.linspace(0, len(values), FOLDS + 1).astype(int)):
        rest = np.r_[0:begin, end : len(values)]
        for which, design in enumerate((without, both)):
            fitted = np.linalg.lstsq(design[rest], values[rest], rcond=None)[0]
            errors[which] += float(((values[begin:end] - design[begin:end] @ fitted) ** 2).sum())
    return bool(errors[1] < (1 - GAIN) * errors[0])


def _design(periods: Sequence[float], steps: Array) -> Array:
    """Return a constant and the cycles (T, column) of periods."""
    columns = [np.ones((len(steps), 1))]
    for period in periods:
        angle = 2 * np.pi * steps[:, None] * np.arange(1, harmonics_of(period) + 1) / period
        columns += [np.cos(angle), np.sin(angle)]
    return np.concatenate(columns, axis=1)

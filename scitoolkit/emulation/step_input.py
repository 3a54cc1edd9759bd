"""The time from each sample to the next as an input, for data whose steps are uneven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation.variables import STEP
from scitoolkit.io.campaign import Campaign
from scitoolkit.io.campaign.campaign_layout import TIME, Array
from scitoolkit.io.campaign.channels import Channel
from scitoolkit.io.dates import of_one_kind
from scitoolkit.io.facts import is_dates, seconds_of

_SLACK = 0.1
"""Share by which a step may be outside the range of the training, which is a sample of steps."""


def with_steps(campaign: Campaign, lead: int) -> Campaign:
    """Return a campaign with the channel STEP: the time to the sample `lead` rows later.

    The last rows of a simulation, which have none, repeat the one before.

    Raises:
        DataError: files without times.
    """
    times = times_of(campaign)
    where = campaign.segments.path(0)
    if times is None:
        raise DataError("no times", where=where, fix="data.time_steps=even, or write times")
    numbers = numbers_of(times)
    steps = np.zeros(len(numbers))
    for block in campaign.index.blocks:
        if len(block) <= lead:  # the start of a prediction, whose times are given
            continue
        own = numbers[block.start : block.stop]
        steps[block.start : block.stop - lead] = own[lead:] - own[:-lead]
        steps[block.stop - lead : block.stop] = steps[block.stop - lead - 1]
    units = "s"
    if not is_dates(times) and campaign.times is not None:
        units = str(campaign.times.attrs.get("units", ""))
    array = Array(STEP, (len(steps),), (TIME,), units, "time to the next sample")
    channels = {**campaign.channels, STEP: Channel(STEP, array)}
    return replace(campaign, channels=channels, row_values={STEP: steps})


def times_of(campaign: Campaign) -> np.ndarray | None:
    """Return the decoded times of all rows, (rows,); None if a file has none."""
    segments = campaign.segments
    parts = [segments.times(k, campaign.options, campaign.arrays) for k in range(len(segments))]
    values = [part.values for part in parts if part is not None]
    values = of_one_kind(values)
    if len(values) < len(parts) or len({v.dtype.kind for v in values}) > 1:
        return None
    times = np.concatenate(values)
    return times if len(times) == campaign.index.num_rows else None


def numbers_of(times: np.ndarray) -> np.ndarray:
    """Return times as float64, in seconds for dates."""
    return seconds_of(times) if is_dates(times) else times.astype(np.float64)


def range_of(
    campaign: Campaign,
    lines: Mapping[str, tuple[float, float]],
    blocks: Sequence[range],
    lead: int,
) -> tuple[float, float]:
    """Return the least and the largest step between samples of blocks.

    Args:
        campaign: with the channel STEP.
        lines: {channel: (factor, offset)} into the unit of the training.
        blocks: samples.
        lead: samples of a step.
    """
    factor, offset = lines.get(STEP, (1.0, 0.0))
    steps = [campaign.row_values[STEP][b.start : max(b.stop - lead, b.start)] for b in blocks]
    values = np.concatenate(steps) * factor + offset
    return float(values.min()), float(values.max())


def require_trained_steps(
    campaign: Campaign,
    lines: Mapping[str, tuple[float, float]],
    trained: tuple[float, float],
    lead: int,
    where: str,
) -> None:
    """Refuse data with steps outside the range of the training.

    Raises:
        DataError: with the range of the data.
    """
    long = [block for block in campaign.index.blocks if len(block) > lead]
    if not long:
        return
    low, high = range_of(campaign, lines, long, lead)
    if not within(np.array([low, high]), trained).all():
        raise DataError(
            f"steps from {low:g} to {high:g}",
            where=where,
            allowed=f"{trained[0]:g} to {trained[1]:g}, as in the training",
            fix="train on such steps, too",
        )


def within(steps: np.ndarray, trained: tuple[float, float]) -> np.ndarray:
    """Return which steps are inside the range of the training, or a tenth beyond."""
    return (steps >= trained[0] * (1 - _SLACK)) & (steps <= trained[1] * (1 + _SLACK))


def times_from(text: str, last: np.ndarray) -> np.ndarray:
    """Return the times of a prediction, later than the last of a file.

    Args:
        text: numbers, or dates as 2001-01-31T06:00, separated by commas.
        last: (1,) the last time of the file, whose kind they must have.

    Raises:
        ConfigError: another kind of times, or times that do not increase.

    Example:
        >>> times_from("0.5,0.75", np.array([0.25])).tolist()
        [0.5, 0.75]
    """
    where = "predict --times"
    try:
        if not is_dates(last):
            times = np.array([float(part) for part in text.split(",")])
        else:
            dates = np.array([np.datetime64(part.strip(), "us") for part in text.split(",")])
            times = dates.astype(last.dtype) if last.dtype.kind == "M" else _like(dates, last)
    except ValueError:
        kind = "dates such as 2001-01-31T06:00" if is_dates(last) else "numbers"
        raise ConfigError(text, where=where, allowed=f"{kind}, separated by commas") from None
    if not (np.diff(numbers_of(np.concatenate([last, times]))) > 0).all():
        raise ConfigError(text, where=where, allowed=f"increasing times after {last[0]}")
    return times


def _like(dates: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return dates in the calendar of cftime dates."""
    make = last[0].replace
    return np.array(
        [
            make(
                year=d.year, month=d.month, day=d.day, hour=d.hour, minute=d.minute, second=d.second
            )
            for d in dates.tolist()
        ],
        object,
    )

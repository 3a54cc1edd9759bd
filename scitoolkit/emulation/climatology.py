"""Climatology of the training part: means of the outputs by day of the year, or of all samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from scitoolkit.core.errors import CheckpointError, ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.emulation.config import AnomalyConfig, EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.variables import Layout
from scitoolkit.io.facts import is_dates
from scitoolkit.io.sphere import is_whole_turn

log = get_logger(__name__)
FILE = "climatology.npz"
FARTHEST = 15
"""Days: a day of the year without training samples has the mean of the nearest day within it."""
MAX_BYTES = 256 * 2**20
_ROWS = 16
_SAME = 1e-2
"""Distance of positions that count as the same, relative to the cells."""
_YEAR = 366


@dataclass(frozen=True)
class FieldClimatology:
    """Means of fields over the training part.

    Attributes:
        days: (K, 2) day of the year (1 to 366, in the calendar of the file) and second of the day;
            (0, 2) for the mean of all samples.
        counts: (K,) number of samples of each, (1,) of all.
        means: {output: (K, *grid) float64}, (1, *grid) for all samples.
        window: days of the year around a day, itself included, that its mean is over.
    """

    days: np.ndarray
    counts: np.ndarray
    means: Mapping[str, np.ndarray]
    window: int = 1

    @property
    def by(self) -> Literal["day_of_year", "constant"]:
        """What the means depend on."""
        return "day_of_year" if len(self.days) else "constant"

    def at(self, day: np.ndarray) -> dict[str, np.ndarray]:
        """Return the fields at a day and second of the day.

        Raises:
            DataError: the training part has no sample at this time of the day within 15 days.
        """
        if not len(self.days):
            return {name: mean[0] for name, mean in self.means.items()}
        away = _days_away(self.days, day)
        near = away <= (self.window - 1) // 2
        if not near.any():
            near = away == away.min()
        if not away.min() <= FARTHEST:
            raise DataError(
                f"no sample of the training is within {FARTHEST} days of day {day[0]} of the year, "
                f"{day[1] / 3600:g} h",
                where="climatology.by",
                fix="climatology.by=constant, or none",
            )
        # Days with more samples weigh more: the mean is that of all samples in the window.
        share = self.counts[near] / self.counts[near].sum()
        return {n: np.tensordot(share, mean[near], 1) for n, mean in self.means.items()}

    def save(self, folder: Path) -> None:
        """Write the climatology next to the weights."""
        arrays = {f"mean/{n}": v for n, v in self.means.items()}
        arrays |= {"days": self.days, "counts": self.counts, "window": np.asarray(self.window)}
        with (folder / FILE).open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, folder: Path) -> FieldClimatology | None:
        """Read what `save` wrote; None if there is none.

        Raises:
            CheckpointError: a damaged file.
        """
        path = folder / FILE
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as stored:
                means = {
                    n.partition("/")[2]: stored[n] for n in stored.files if n.startswith("mean/")
                }
                return cls(stored["days"], stored["counts"], means, int(stored["window"]))
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(f"cannot be read ({error})", where=str(path)) from None


def on_cells(
    climatology: FieldClimatology | None, trained: Layout, layout: Layout
) -> FieldClimatology | None:
    """Return a climatology on the cells of data; None where the data have other cells.

    Longitudes may begin elsewhere, at -180 for 0 degrees: the means are rolled.

    Args:
        climatology: of the training part.
        trained: layout of the training.
        layout: of the data, with the dims in the same order.
    """
    if climatology is None:
        return None
    means = dict(climatology.means)
    for axis, dim in enumerate(trained.grid):
        own, other = (np.asarray(x.coordinates.get(dim, ()), np.float64) for x in (trained, layout))
        if not len(own) or len(own) != len(other):
            continue  # without positions, or of another size, which the evaluation tells
        shift = cells_later(own, other)
        if shift is None:
            log.warning(
                "the climatology is of %s from %g to %g, not %g to %g: no anomaly correlations",
                dim,
                *own[[0, -1]],
                *other[[0, -1]],
            )
            return None
        means = {name: np.roll(mean, -shift, axis + 1) for name, mean in means.items()}
    return replace(climatology, means=means)


def cells_later(own: np.ndarray, other: np.ndarray) -> int | None:
    """Return by how many cells other positions begin later; None if they are other positions."""
    if len(own) < 2:
        return 0 if np.allclose(own, other) else None
    step = np.abs(np.diff(own)).min()
    if (np.abs(other - own) <= _SAME * step).all():
        return 0
    if not (is_whole_turn(own) and is_whole_turn(other)):
        return None
    turn = 2 * np.pi if np.abs(own[-1] - own[0]) < 7 else 360.0
    for shift in range(len(own)):
        away = (other - np.roll(own, -shift) + turn / 2) % turn - turn / 2
        if (np.abs(away) <= _SAME * step).all():
            return shift
    return None


def days_of_year(times: np.ndarray) -> np.ndarray:
    """Return (N, 2) int64: day of the year, from 1, and second of the day of dates.

    Example:
        >>> days_of_year(np.array(["2001-02-01T06:00"], "datetime64[s]")).tolist()
        [[32, 21600]]
    """
    if times.dtype.kind == "M":
        days = times.astype("datetime64[D]")
        number = (days - times.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.int64)
        return np.stack([number + 1, (times - days).astype("timedelta64[s]").astype(np.int64)], 1)
    clocks = [(t.dayofyr, 3600 * t.hour + 60 * t.minute + t.second) for t in times.tolist()]
    return np.array(clocks, np.int64).reshape(-1, 2)


def fit_climatology(
    config: EmulationConfig, data: Data, blocks: Sequence[range]
) -> FieldClimatology | None:
    """Return the climatology of the training part; None if scores need none.

    Args:
        config: the job.
        data: the opened campaign.
        blocks: samples of the training part.
    """
    days = days_to_fit(config, data, blocks)
    fields = [v.name for v in data.layout.outputs if v.is_field]
    # The climatology of a cell that had no values at times is not defined.
    if days is None or not fields or not blocks or data.layout.mask_of_step:
        return None
    rows = np.concatenate([np.asarray(block) for block in blocks])
    keys, place = np.zeros((0, 2), np.int64), np.zeros(len(rows), np.int64)
    if len(days):
        keys, place = np.unique(days[rows], axis=0, return_inverse=True)
    place = place.reshape(-1)
    counts = np.bincount(place)
    sums = {n: np.zeros((len(counts), *data.layout.grid.values())) for n in fields}
    source = data.source(np.arange(data.num_samples), [0])
    for first in range(0, len(rows), _ROWS):
        batch = source.read(rows[first : first + _ROWS])
        for name, total in sums.items():
            # Not `+=` with an index: samples of one day occur several times in a batch.
            np.add.at(total, place[first : first + _ROWS], batch[name][:, 0].astype(np.float64))
    shape = (-1, *[1] * len(data.layout.grid))
    means = {n: total / counts.reshape(shape) for n, total in sums.items()}
    return FieldClimatology(keys, counts, means, config.climatology.window)


def days_to_fit(config: EmulationConfig, data: Data, blocks: Sequence[range]) -> np.ndarray | None:
    """Return the days of the year of all samples, none for a constant, None for no climatology.

    Raises:
        ConfigError: a climatology by day of the year of data without dates, of days that the
            training part does not have, or larger than 256 MiB.
    """
    settings: AnomalyConfig = config.climatology
    asked = settings.by if settings.by != "auto" or data.layout.areas is not None else "none"
    if asked == "none" or config.data.streams:
        return None
    none = np.zeros((0, 2), np.int64)
    if asked == "constant":
        return none
    times = data.row_times
    problem = "the samples have no dates"
    days = none
    if times is not None and is_dates(times):
        days = days_of_year(times)
        problem = _problem(data, days, blocks)
    if not problem:
        return days
    if asked == "day_of_year":
        raise ConfigError(problem, where="climatology.by", fix="climatology.by=constant, or none")
    log.info("the climatology of scores is the mean of all training samples: %s", problem)
    return none


def _problem(data: Data, days: np.ndarray, blocks: Sequence[range]) -> str:
    """Return why means by day of the year are not possible; "" if they are."""
    rows = np.concatenate([np.asarray(block) for block in blocks])
    trained = np.unique(days[rows], axis=0)
    for day in np.unique(days, axis=0):
        if not _days_away(trained, day).min() <= FARTHEST:
            return (
                f"no sample of the training part is within {FARTHEST} days of day {day[0]} of the "
                f"year, {day[1] / 3600:g} h"
            )
    fields = sum(v.is_field for v in data.layout.outputs)
    size = 8 * len(trained) * fields * data.layout.grid_size
    if size > MAX_BYTES:
        return f"{len(trained)} means of each output are {size / 2**20:.0f} MiB"
    return ""


def _days_away(days: np.ndarray, day: np.ndarray) -> np.ndarray:
    """Return the days from a day of the year; infinite at another time of the day."""
    # A year of 366 days for all calendars: across the new year of a shorter one the distance is too
    # large by a day, or by six of the 360-day calendar.
    away = np.abs(days[:, 0] - day[0])
    return np.where(days[:, 1] == day[1], np.minimum(away, _YEAR - away).astype(float), np.inf)

"""Inputs that change in time and that no step computes: read from a file, by time, in rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.unit_conversion import conversion
from scitoolkit.core.units import same_unit
from scitoolkit.emulation.data import Data, matched
from scitoolkit.emulation.stages import EmulationStages
from scitoolkit.io.campaign.campaign import open_campaign
from scitoolkit.io.campaign.campaign_layout import CampaignOptions
from scitoolkit.io.campaign.files import find_files
from scitoolkit.io.campaign.headers import read_header
from scitoolkit.io.campaign.mask import MISSING
from scitoolkit.io.campaign.masking import missing_cells
from scitoolkit.io.campaign.more_layouts import layout_of
from scitoolkit.io.facts import is_dates, seconds_of
from scitoolkit.surrogate import Trained, open_checked

_TOLERANCE = 1e-3
"""Share of a step by which times may differ: those of files with few digits."""
_PLAIN = ("standard", "gregorian", "proleptic_gregorian")
"""Calendars of the same dates since 1582."""


@dataclass(frozen=True)
class Drivers:
    """Values of inputs at the steps of a rollout.

    Attributes:
        data: the opened file.
        rows: (steps,) its row at each step; that of step 0 is not used.
    """

    data: Data
    rows: np.ndarray

    def __call__(self, step: int) -> dict[str, np.ndarray]:
        """Return the inputs at the beginning of a step, from 1."""
        return self.data.frame(int(self.rows[step]))


def open_drivers(
    trained: Trained, path: Path, names: Sequence[str], source: Data, times: np.ndarray
) -> Drivers:
    """Open a file of inputs that change in time, and find the rows of a rollout.

    Args:
        trained: the emulator.
        path: the file.
        names: entries of `data.inputs` to read; those that it lacks are left out.
        source: the file that the rollout starts from.
        times: (steps,) times at the beginning of each step; the first is that of the last sample
            of `source`.

    Raises:
        DataError: a file without these inputs, of another unit, grid or calendar, or without one
            of the times.
    """
    present = _present(trained, path, names)
    section = trained.config.data
    options = CampaignOptions(section.sample_dim, section.dims, gaps="split")
    # Sunlight has values where an ocean has none; the network does not read them there.
    masked = section.mask == MISSING and missing_cells(open_campaign(path, present, options))
    section = section.model_copy(
        update={
            "inputs": present,
            "outputs": present,
            "units": {n: u for n, u in section.units.items() if n in present},
            "parameters": [],
            "parameter_table": None,
            "lead": 0,
            "leads": [],
            "history": 1,
            "time_steps": "even",
            "gaps": "split",
            "mask": MISSING if masked else None,
            "mask_of_step": None,
            "grid": None,
        }
    )
    config = trained.config.model_copy(update={"data": section})
    data: Data = open_checked(EmulationStages(), config, path, trained.facts)
    try:
        channels = [c for n in present for c in data.campaign.names[n]]
        like = trained.model.layout
        variables = tuple(v for v in like.inputs if v.name in channels)
        own = any(v.is_field for v in variables)
        grid = {d: n for d, n in like.grid.items() if own}
        mask = like.mask if masked else ""
        like = replace(like, inputs=variables, outputs=variables, grid=grid, mask=mask)
        data = matched(data, section, like, warn=False, compare_step=False)
        if own:
            _require_grid(data, source)
        return Drivers(data, _rows(data, source, times))
    except BaseException:
        data.close()
        raise


def _present(trained: Trained, path: Path, names: Sequence[str]) -> list[str]:
    """Return the names that a file holds.

    Raises:
        DataError: it holds none.
    """
    section = trained.config.data
    header = read_header(Path(find_files(path).paths[0]))
    options = CampaignOptions(section.sample_dim, section.dims)
    stored = layout_of(header).arrays(header, options)
    present = [n for n in names if {n, n.rpartition("_")[0], f"{n}_real"} & set(stored)]
    if not present:
        raise DataError(
            f"it holds none of {', '.join(names)}", where=str(path), allowed=", ".join(stored)
        )
    return present


def _require_grid(data: Data, source: Data) -> None:
    """Refuse drivers on other cells than the state."""
    here, there = data.layout, source.layout
    same = here.grid == there.grid
    for dim, points in here.coordinates.items() if same else ():
        other = np.asarray(there.coordinates.get(dim, points))
        slack = _TOLERANCE * np.ptp(other) / max(len(other) - 1, 1)
        same = same and bool((np.abs(np.asarray(points) - other) <= slack).all())
    if not same:
        raise DataError(
            f"a grid of {here.grid} with other cells than the file that the rollout starts from",
            where=data.where,
            allowed=f"the cells of {source.where}, {there.grid}",
            fix="interpolate the forcing to that grid",
        )


def _rows(data: Data, source: Data, times: np.ndarray) -> np.ndarray:
    """Return the row of each time but the first.

    Raises:
        DataError: no times, another kind of times, or a time without values.
    """
    stored = data.row_times
    dim = source.layout.sample_dim
    if stored is None or dim not in source.dataset.coords:
        which = data.where if stored is None else source.where
        raise DataError("no times, by which a forcing is aligned", where=which)
    wanted = _numbers(times, source, source)
    numbers = _numbers(stored, data, source)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    # The first time is that of the file that the rollout starts from: it sets the length of the
    # first step, and its values are not read from the forcing.
    slack = _TOLERANCE * float(np.abs(np.diff(wanted)).min(initial=np.inf))
    # The first stored time that is not below the tolerance; the check below refuses one beyond it.
    # Written so that NaN is missing.
    place = np.clip(np.searchsorted(numbers, wanted - slack), 0, len(numbers) - 1)
    missing = ~(np.abs(numbers[place] - wanted) <= slack)
    missing[0] = False
    if missing.any():
        raise DataError(
            f"no values at {dim} {times[np.argmax(missing)]}, one of {missing.sum()} such steps of "
            "the rollout",
            where=data.where,
            allowed=f"values at every step; it has {len(stored)}, from {stored[order[0]]} to "
            f"{stored[order[-1]]}",
            fix="a forcing of the whole period, interpolated to the steps, or fewer --steps",
        )
    after = np.clip(place + 1, 0, len(numbers) - 1)
    twice = (after > place) & (np.abs(numbers[after] - wanted) <= slack)
    twice[0] = False
    if twice.any():
        raise DataError(
            f"two samples at {dim} {times[np.argmax(twice)]}",
            where=data.where,
            fix="a file with each time once",
        )
    return order[place]


def _numbers(times: np.ndarray, of: Data, source: Data) -> np.ndarray:
    """Return times as numbers in the unit of the source: seconds for dates.

    Raises:
        DataError: dates of another calendar, or numbers of another kind, than the source's.
    """
    dim = source.layout.sample_dim
    here, there = (d.dataset[dim] for d in (of, source))
    if is_dates(times) != is_dates(there.values):
        kinds = {True: "dates", False: "numbers"}
        raise DataError(
            f"times as {kinds[is_dates(times)]}",
            where=of.where,
            allowed=f"{kinds[is_dates(there.values)]}, as in {source.where}",
        )
    if is_dates(times):
        calendars = [_calendar(array.values, array.encoding) for array in (here, there)]
        if calendars[0] != calendars[1]:
            raise DataError(
                f"calendar {calendars[0]}", where=of.where, allowed=f"calendar {calendars[1]}"
            )
        return seconds_of(times)
    units = [str(array.attrs.get("units", "")) for array in (here, there)]
    numbers = times.astype(np.float64)
    if same_unit(*units) or not all(units):
        return numbers
    line = conversion(units[0], units[1])
    if line is None:
        raise DataError(f"times in {units[0]}", where=of.where, allowed=f"times in {units[1]}")
    return numbers * line[0] + line[1]


def _calendar(times: np.ndarray, encoding: dict[str, object]) -> str:
    named = encoding.get("calendar", "standard")
    if times.dtype.kind == "O" and times.size:
        named = times.flat[0].calendar
    return "standard" if str(named) in _PLAIN else str(named)


def require_held(held: Sequence[str], where: str, steps: int, *, hold: bool) -> None:
    """Refuse a rollout that would hold inputs that change in time, unless that is asked for.

    Args:
        held: inputs that change in time and that no file gives after the start.
        where: the file that the rollout starts from.
        steps: of the rollout; the first needs no values after the start.
        hold: whether to hold them.

    Raises:
        ConfigError: with their names.
    """
    if held and steps > 1 and not hold:
        raise ConfigError(
            f"{', '.join(held)} change in time, and {steps} steps need their values after the last "
            "sample of the file",
            where=f"{where}: forcing",
            allowed="a file with their values at every step",
            fix="predict --forcing FILE; or --forcing hold, to hold them at their last values",
        )

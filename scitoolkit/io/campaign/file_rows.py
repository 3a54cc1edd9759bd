"""Rows of one file that belong to one simulation, with their times."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.calendar_steps import months_as_days
from scitoolkit.io.campaign.campaign_layout import CampaignLayout, CampaignOptions
from scitoolkit.io.campaign.constants import Constants
from scitoolkit.io.campaign.file_names import stem_of
from scitoolkit.io.campaign.headers import StoredArray
from scitoolkit.io.campaign.plain import Plain
from scitoolkit.io.campaign.row_times import gaps_of, repeats_in, unpacked
from scitoolkit.io.coordinates import require_increasing

if TYPE_CHECKING:
    import xarray as xr

_logger = get_logger(__name__)
_REPAIR = "write a file for each simulation; after a restart, drop the repeated rows"
_CALENDAR = ("units", "calendar", "standard_name", "axis", "long_name")


@dataclass(frozen=True)
class FileRows:
    """Consecutive rows of one simulation in one file.

    Attributes:
        path: of the file.
        file: number of the file.
        group: group in the file, "" for its root.
        member: index along the simulation axis, -1 without one.
        count: number of rows.
        stored: (count,) times as stored; None if the file has none.
        calendar: attributes of the times: units, calendar, ...
        single: whether the file has no time axis and contains one sample.
        step: simulation and step of a sample, if the file states them.
        constants: numbers and names that hold for the whole file, see `constants_of`.
        breaks: rows before which times are missing.
        repeated: rows after these that are left out, since the next part holds them again.
        skips: (row, rows of the file left out before it, since it holds them again).
    """

    path: str
    file: int
    group: str
    member: int
    count: int
    stored: np.ndarray | None
    calendar: dict[str, Any]
    single: bool
    step: tuple[str, int] | None = None
    constants: Constants = field(default_factory=dict)
    breaks: tuple[int, ...] = ()
    repeated: int = 0
    skips: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(
        cls,
        path: str,
        file: int,
        group: str,
        member: int,
        count: int | None,
        stored: StoredArray | None,
        layout: type[CampaignLayout],
        options: CampaignOptions,
        step: tuple[str, int] | None = None,
        constants: Constants | None = None,
    ) -> FileRows:
        """Return the rows with their times.

        Raises:
            DataError: the number of times differs from that of rows, or times are missing or do
                not increase.
        """
        rows = 1 if count is None else count
        times, calendar = None, {}
        breaks: tuple[int, ...] = ()
        skips: tuple[tuple[int, int], ...] = ()
        if stored is not None and stored.values is not None:
            values = np.asarray(stored.values)
            values = values[max(member, 0)] if values.ndim == 2 else np.atleast_1d(values)
            where = f"{path}: variable {stored.name}"
            # PDEBench stores both ends of every step.
            if len(values) == rows + 1 and layout is not Plain:
                _logger.warning(
                    "%s: %s has %d values for %d rows; assuming that the last one is the end of "
                    "the last step",
                    path,
                    stored.name,
                    len(values),
                    rows,
                )
                values = values[:rows]
            if len(values) != rows:
                raise DataError(
                    f"{len(values)} times for {rows} rows",
                    where=where,
                    fix="write as many times as rows",
                )
            times = unpacked(values, stored.attrs)
            calendar = {k: stored.attrs[k] for k in _CALENDAR if k in stored.attrs}
            if options.lead:
                # Members of one file are read together, row by row.
                skips = repeats_in(times) if member < 0 else ()
                for row, number in skips:
                    times = np.delete(times, slice(row, row + number))
                rows = len(times)
                require_increasing(times, where, place="row", fix=_REPAIR)
                if options.gaps != "allow":
                    breaks = gaps_of(times, where, options.gaps == "split")
        single = count is None
        return cls(
            path,
            file,
            group,
            member,
            rows,
            times,
            calendar,
            single,
            step,
            constants or {},
            breaks,
            skips=skips,
        )

    def in_file(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows of the file that rows are, (n,) int64."""
        at = np.array([row for row, _ in self.skips], np.int64)
        dropped = np.cumsum([0, *(count for _, count in self.skips)])
        return rows + dropped[np.searchsorted(at, rows, side="right")]

    def stretches(self) -> list[tuple[int, int]]:
        """Return (row, last + 1) of the stretches that follow one another in the file."""
        cuts = [0, *(row for row, _ in self.skips if row < self.count), self.count]
        return list(itertools.pairwise(cuts))

    def times(self, dim: str) -> xr.Variable | None:
        """Return the times decoded according to their attributes; None without times."""
        if self.stored is None:
            return None
        import xarray as xr

        stored, attributes = months_as_days(self.stored, self.calendar, self.path)
        raw = xr.Dataset(coords={dim: (dim, stored, attributes)})
        try:
            with warnings.catch_warnings():
                # xarray warns of dates beyond datetime64 and of years without four digits (GrADS).
                warnings.simplefilter("ignore")
                return xr.decode_cf(raw, decode_timedelta=False)[dim].variable.to_base_variable()
        except (ValueError, OverflowError) as error:
            text = f"its times cannot be decoded ({error})"
            raise DataError(text, where=self.path) from None

    @property
    def name(self) -> str:
        """The name of the simulation, if no other file contributes to it."""
        parts = [stem_of(self.path)]
        parts += [self.group] if self.group else []
        parts += [str(self.member)] if self.member >= 0 else []
        return "/".join(parts)

    @cached_property
    def clock(self) -> tuple[Any, ...]:
        """Units and calendar; stored times with the same clock can be compared directly."""
        return self.calendar.get("units"), self.calendar.get("calendar")

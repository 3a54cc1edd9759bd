"""Times of the rows of one file: as numbers, increasing, and where some are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger

_logger = get_logger(__name__)
_SAME = 1e-3
"""Distance of times that count as the same, in steps."""
GAP = 1.5
"""A step of more median steps is a gap; months and leap years differ by less."""


def unpacked(values: np.ndarray, attrs: Mapping[str, Any]) -> np.ndarray:
    """Return stored times as numbers: NaN for fill values, scale and offset in float64."""
    fills = [np.ravel(attrs[k]) for k in ("_FillValue", "missing_value") if k in attrs]
    numbers = [f for f in fills if f.dtype.kind in "iuf"]
    # Fill values are stated in the packed numbers, so that they are compared before scale and
    # offset.
    missing = np.isin(values, np.concatenate(numbers)) if numbers else np.zeros(len(values), bool)
    packed = {k: attrs[k] for k in ("scale_factor", "add_offset") if k in attrs}
    if packed:
        values = values * float(packed.get("scale_factor", 1)) + float(packed.get("add_offset", 0))
    return np.where(missing, np.nan, values) if missing.any() else values


def repeats_in(times: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Return (row, count) of times that repeat within one file, as restarts write them.

    Before `row`, counted without what is left out, `count` rows are left out: the same number of
    times follow again. Empty if times increase, and where they do not continue like that.

    Example:
        >>> repeats_in(np.array([0.0, 1, 2, 3, 2, 3, 4, 4, 5]))
        ((2, 2), (4, 1))
        >>> repeats_in(np.array([0.0, 1, 2, 0.5, 1.5]))
        ()
    """
    if times.ndim != 1 or times.dtype.kind not in "iuf" or not np.isfinite(times).all():
        return ()
    times = times.astype(np.float64)
    starts = [0, *(np.flatnonzero(np.diff(times) <= 0) + 1).tolist(), len(times)]
    repeats, dropped = [], 0
    for first, again, end in zip(starts, starts[1:], starts[2:], strict=False):
        near = _SAME * np.min(np.diff(times[first:again]), initial=np.inf)
        count = int((times[first:again] >= times[again] - near).sum())
        if count >= again - first or count > end - again:
            return ()
        if (np.abs(times[again - count : again] - times[again : again + count]) > near).any():
            return ()
        repeats.append((again - count - dropped, count))
        dropped += count
    return tuple(repeats)


def gaps_of(values: np.ndarray, where: str, split: bool) -> tuple[int, ...]:
    """Return the rows before which times are missing: a window across a gap is no step.

    Steps that vary everywhere, such as those of a CFL condition, are no gaps.

    Raises:
        DataError: with the first gap, unless simulations are to be split there.
    """
    if len(values) < 3 or values.dtype.kind not in "iuf":
        return ()
    steps = np.diff(values.astype(np.float64))
    typical = float(np.median(steps))
    longer = steps > GAP * typical
    # The median is not moved by a few gaps. If the other steps vary as well, long ones are no gaps.
    if not longer.any() or not (np.abs(steps[~longer] - typical) <= 0.2 * typical).all():
        return ()
    rows = tuple((np.flatnonzero(longer) + 1).tolist())
    if split:
        _logger.info("%s: times are missing before rows %s", where, ", ".join(map(str, rows)))
        return rows
    i = rows[0]
    raise DataError(
        f"times are missing between rows {i - 1} and {i} ({values[i - 1]} then {values[i]}, "
        f"with steps of {typical:g})",
        where=where,
        allowed="the same step within a simulation",
        fix="data.gaps=split, so that no window crosses them, or a file for each stretch",
    )

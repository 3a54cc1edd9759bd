"""Parts of a simulation that hold the same rows twice, as restarts write them.

The last rows of the earlier part are dropped, also where both are in one file. That both hold the
same values is read, not assumed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.campaign_layout import SIMULATION, TIME, Array
from scitoolkit.io.campaign.file_rows import FileRows
from scitoolkit.io.campaign.headers import FileHeader, full_name
from scitoolkit.io.coordinates import READ_ERRORS

_logger = get_logger(__name__)


def require_equal_rows(
    members: Sequence[FileRows],
    used: Mapping[str, Array],
    header: Callable[[int], FileHeader],
) -> None:
    """Compare the rows that the parts of a simulation hold twice.

    Args:
        members: the parts in the order of their times, without the rows of the next one.
        used: the arrays that are read, by path.
        header: returns the header of a file by its number.

    Raises:
        DataError: the first row in which two parts differ.
    """
    for part in members:
        _require_equal_repeats(part, used, header(part.file))
    for before, after in itertools.pairwise(members):
        if not before.repeated:
            continue
        last = before.in_file(before.count + np.arange(before.repeated))
        again = after.in_file(np.arange(before.repeated))
        for path, array in used.items():
            if TIME not in array.roles:
                continue
            end = _rows(before, path, array, header(before.file), last)
            begin = _rows(after, path, array, header(after.file), again)
            if (row := _first_other(end, begin)) is not None:
                raise DataError(
                    f"begins at a time within {before.path}, as a restart does, but row "
                    f"{row} of {path} has other values there",
                    where=after.path,
                    fix="drop the repeated rows of one part, or data.files=simulations",
                )
        text = "%s: its last %d rows, which %s holds again with the same values, are dropped"
        _logger.info(text, before.path, before.repeated, after.path)


def _require_equal_repeats(part: FileRows, used: Mapping[str, Array], header: FileHeader) -> None:
    """Compare the rows that one file holds twice.

    Raises:
        DataError: the first row with other values.
    """
    for row, count in part.skips:
        again = part.in_file(row + np.arange(count))
        for path, array in used.items():
            if TIME not in array.roles:
                continue
            pair = (_rows(part, path, array, header, rows) for rows in (again - count, again))
            if (at := _first_other(*pair)) is not None:
                raise DataError(
                    f"its time goes backward at row {again[0]}, as after a restart, but {path} has "
                    f"other values in row {again[at]} than in row {again[at] - count} of that time",
                    where=part.path,
                    fix="drop the repeated rows, or write a file for each simulation",
                )
        text = "%s: rows %d to %d, which it holds again with the same values, are dropped"
        _logger.info(text, part.path, again[0] - count, again[0] - 1)


def _first_other(some: np.ndarray, others: np.ndarray) -> int | None:
    """Return the first row in which values differ; None if there is none."""
    both_missing = (some != some) & (others != others)  # NaN, of numbers and of times
    differ = ((some != others) & ~both_missing).reshape(len(some), -1).any(1)
    return int(np.argmax(differ)) if differ.any() else None


def _rows(
    part: FileRows, path: str, array: Array, header: FileHeader, rows: np.ndarray
) -> np.ndarray:
    """Return rows of a part's file, (rows, ...), with missing values as NaN."""
    name = full_name(part.group, path)
    index = {TIME: rows, SIMULATION: max(part.member, 0)}
    key = tuple(index.get(role, slice(None)) for role in array.roles)
    try:
        # Closed again: the simulation may still be writing the file.
        with header.format.open_dataset(Path(part.path)) as stored:
            values = stored[name].variable[key].values
    except READ_ERRORS as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"cannot be read ({text})", where=f"{part.path}: {name}") from None
    return np.moveaxis(values, [r for r in array.roles if r != SIMULATION].index(TIME), 0)

"""Parts of a simulation that hold the same rows twice, as restarts write them.

The last rows of the earlier part are dropped, since rows of a segment are counted from the first of
its file. That both parts hold the same values is read, not assumed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.headers import FileHeader, full_name
from scitoolkit.io.campaign.layouts import SIMULATION, TIME, Array
from scitoolkit.io.campaign.series import FileRows
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
    for before, after in itertools.pairwise(members):
        if not before.repeated:
            continue
        for path, array in used.items():
            if TIME not in array.roles:
                continue
            end, begin = (
                _rows(one, path, array, header(one.file), first, before.repeated)
                for one, first in ((before, before.count), (after, 0))
            )
            both_missing = (end != end) & (begin != begin)  # NaN, of numbers and of times
            differ = ((end != begin) & ~both_missing).reshape(len(end), -1)
            if differ.any():
                raise DataError(
                    f"begins at a time within {before.path}, as a restart does, but row "
                    f"{np.argmax(differ.any(1))} of {path} has other values there",
                    where=after.path,
                    fix="drop the repeated rows of one part, or data.files=simulations",
                )
        text = "%s: its last %d rows, which %s holds again with the same values, are dropped"
        _logger.info(text, before.path, before.repeated, after.path)


def _rows(
    part: FileRows, path: str, array: Array, header: FileHeader, first: int, count: int
) -> np.ndarray:
    """Return rows of a part, (rows, ...), with missing values as NaN."""
    name = full_name(part.group, path)
    index = {TIME: slice(first, first + count), SIMULATION: max(part.member, 0)}
    key = tuple(index.get(role, slice(None)) for role in array.roles)
    try:
        # Closed again: the simulation may still be writing the file.
        with header.format.open_dataset(Path(part.path)) as stored:
            values = stored[name].variable[key].values
    except READ_ERRORS as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"cannot be read ({text})", where=f"{part.path}: {name}") from None
    return np.moveaxis(values, [r for r in array.roles if r != SIMULATION].index(TIME), 0)

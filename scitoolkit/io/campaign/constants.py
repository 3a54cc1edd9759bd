"""Constants of a file: the parameters and names by which files of one simulation are told apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from scitoolkit.io.campaign.headers import FileHeader
from scitoolkit.io.roles import TIME_NAMES, role_by_metadata

_NAMES = (
    "source_id",
    "experiment_id",
    "variant_label",
    "experiment",
    "simulation",
    "member_id",
    "ensemble_member",
)
"""Attributes of text that name a simulation (CMIP6 global attributes and usual ones).

Other text, such as `history` and `creation_date`, differs between parts of one simulation.
"""
_COUNTER = re.compile(
    r"(set|part|file|restart|segment|chunk|index|number|num|count|writes?|iteration|step|julday|julyr)s?",
    re.IGNORECASE,
)
Constants = Mapping[str, float | int | str]


def constants_of(header: FileHeader) -> dict[str, float | int | str]:
    """Return the numbers among attributes and scalar variables, and the names of a simulation.

    Times, packing and dims of variables are none: an attribute of a variable describes it.
    """
    out: dict[str, float | int | str] = {}
    for name, value in header.attrs.items():
        key = name.rpartition("/")[2]
        if isinstance(value, int | float) and not key.startswith("_"):
            out[name] = value
        elif isinstance(value, list) and all(isinstance(v, int | float) for v in value):
            out[name] = repr(value)
        elif isinstance(value, str) and key in _NAMES:
            out[name] = value
    for name, stored in header.variables.items():
        key = name.rpartition("/")[2]
        value = header.values.get(name)
        time = key.lower() in TIME_NAMES or role_by_metadata(stored.attrs) == "time"
        if value is None or stored.shape or time or value.dtype.kind not in "biuf":
            continue
        if "grid_mapping_name" not in stored.attrs:
            out[name] = value.item()
    return out


def differing(constants: Sequence[Constants], times: Sequence[np.ndarray | None]) -> list[str]:
    """Return the names of the constants by which files are different simulations.

    Counters of parts by their names, numbers of rows, and times within the range of a file's own
    rows, differ between the parts of one simulation.

    Args:
        constants: of each file.
        times: (rows,) of each file; None without times.
    """
    names = {n for c in constants for n in c}
    return sorted(n for n in names if _differs(n, [c.get(n) for c in constants], times))


def _differs(
    name: str, values: Sequence[float | int | str | None], times: Sequence[np.ndarray | None]
) -> bool:
    if len({repr(v) for v in values}) <= 1:
        return False
    numbers = [v for v in values if isinstance(v, int | float)]
    if len(numbers) < len(values):
        return True
    whole = all(isinstance(v, int) for v in numbers)
    words = re.split(r"[\W_]+", name.rpartition("/")[2])
    if whole and any(_COUNTER.fullmatch(word) for word in words):
        return False
    timed = [t for t in times if t is not None and len(t)]
    if len(timed) < len(values):
        return True
    if whole and numbers == [len(t) for t in timed]:
        return False
    ends = [(float(t[0]), float(t[-1])) for t in timed]
    steps = [abs(b - a) / max(1, len(t) - 1) for (a, b), t in zip(ends, timed, strict=True)]
    inside = [a - s <= v <= b + s for v, s, (a, b) in zip(numbers, steps, ends, strict=True)]
    # Numbers that rise from file to file, each within a file's own times, are its times: such as
    # those of the last step.
    return not (all(inside) and (np.diff(numbers) > 0).all())

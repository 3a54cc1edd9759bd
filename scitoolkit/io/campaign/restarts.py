"""Simulations that hold one solution under several names: restarts, and longer copies of a run.

A restart writes the state at the end of the run before it once more, whatever its file is called.
So the last row of each simulation is compared with the rows of the same time of all others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.rows import CampaignRows, row_sets
from scitoolkit.io.dates import of_one_kind, seconds_since

_logger = get_logger(__name__)
_MAX_SIMULATIONS, _MAX_READS = 500, 500
"""Bounds of the work: each simulation is asked for its times, each candidate for one row."""
_TOLERANCE = 1e-3
"""Distance of times that count as the same, in steps."""


def repeated_solutions(campaign: Campaign) -> Iterator[tuple[int, int, int]]:
    """Yield (simulation, earlier simulation, row of the former) where both hold one state.

    Rows of one value say nothing: many solutions end in the same rest.
    """
    clocks = _clocks(campaign)
    if clocks is None or len(clocks) < 2:
        return
    steps = [float(np.diff(times).min()) for times in clocks if len(times) > 1]
    limit = _TOLERANCE * min(steps, default=0.0)
    sets = [s for s in row_sets(campaign).values() if isinstance(s, CampaignRows)]
    moving = [s for s in sets if s.axis is not None]
    reads, told = 0, set[tuple[int, int]]()
    for end in np.unique([times[-1] for times in clocks]):
        rows = [int(np.argmin(np.abs(times - end))) for times in clocks]
        sharing = [n for n, row in enumerate(rows) if abs(clocks[n][row] - end) <= limit]
        if len(sharing) < 2:
            continue
        reads += len(sharing)
        if reads > _MAX_READS:
            _logger.info("more than %d rows to compare: restarts are not looked for", _MAX_READS)
            return
        states: dict[bytes, int] = {}
        for number in sharing:
            state = _state(campaign, moving, int(campaign.index.bounds[number]) + rows[number])
            earlier = states.setdefault(state, number) if state else number
            if earlier != number and (earlier, number) not in told:
                told.add((earlier, number))
                yield number, earlier, rows[number]


def _state(campaign: Campaign, sets: list[CampaignRows], row: int) -> bytes:
    """Return a digest of the values of a row; empty if it cannot be read or has one value only."""
    _, _, segment = campaign.index.locate(row)
    first = row - int(campaign.index.rows[segment])
    digest, varied = hashlib.blake2b(digest_size=16), False
    for rows in sets:
        try:
            values = np.ascontiguousarray(rows.members([segment], first, first + 1))
        except DataError:
            return b""  # reported, or allowed, where the row is used
        finite = values[np.isfinite(values)]
        varied = varied or bool((finite != finite[:1]).any())
        digest.update(values.tobytes())
    return digest.digest() if varied else b""


def _clocks(campaign: Campaign) -> list[np.ndarray] | None:
    """Return the times of each simulation since the first, (rows,) float64; None if unknown."""
    if campaign.index.num_simulations > _MAX_SIMULATIONS:
        return None
    parts: list[list[np.ndarray]] = [[] for _ in campaign.labels]
    for segment, simulation in enumerate(campaign.index.simulation.tolist()):
        try:
            times = campaign.segments.times(segment, campaign.options, campaign.arrays)
        except DataError:
            return None  # of a unit that is no date
        if times is None:
            return None
        parts[simulation].append(times.values)
    joined = iter(of_one_kind([values for part in parts for values in part]))
    whole = [np.concatenate([next(joined) for _ in part]) for part in parts]
    try:
        return [seconds_since(values, whole[0][0]) for values in whole]
    except TypeError:
        return None  # of two calendars, or of numbers and dates

"""Leakage checks: duplicate simulations, and splits that share rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.copies import copies_of
from scitoolkit.io.campaign.restarts import repeated_solutions
from scitoolkit.io.campaign.split import SplitRows

_logger = get_logger(__name__)
_COPY = "is a copy of", "leave it out, or data.on_error=skip"
_RESTART = (
    "holds a state of the same time, as a restart does, of",
    "leave it out; data.files=parts joins files that only continue one another",
)


def require_no_leak(campaign: Campaign, parts: SplitRows) -> None:
    """Raise if parts of the split share rows, copies of a simulation, or restarts of it.

    Duplicates within one part are logged as warnings.

    Raises:
        DataError: with the two parts and the simulations.
    """
    index, segments = campaign.index, campaign.segments
    owner = np.full(index.num_simulations, -1)
    names = list(parts)
    taken = np.full(index.num_rows, -1, np.int8)
    for number, blocks in enumerate(parts.values()):
        for block in blocks:
            before = taken[block.start : block.stop]
            if (before >= 0).any():
                row = block.start + int(np.argmax(before >= 0))
                raise DataError(
                    f"the row is in both the {names[int(taken[row])]} and the {names[number]} part",
                    where=campaign.where(row),
                )
            before[:] = number
            owner[index.simulation_of(np.array([block.start, block.stop - 1]))] = number
    firsts = np.unique(segments.simulation, return_index=True)[1]
    sizes = segments.files.sizes[segments.file[firsts]].tolist()
    # A file of several simulations has a size that says nothing about one: 0, which equals no
    # other.
    alone = np.bincount(segments.file[firsts])
    files = [
        (segments.path(int(k)), s if alone[segments.file[k]] == 1 else 0)
        for k, s in zip(firsts, sizes, strict=True)
    ]
    for copy, original in copies_of(files).items():
        _report(campaign, names, owner, copy, original, _COPY)
    for again, earlier, shared in repeated_solutions(campaign):
        _report(campaign, names, owner, again, earlier, _RESTART, shared)


def _report(
    campaign: Campaign,
    names: Sequence[str],
    owner: np.ndarray,
    copy: int,
    original: int,
    relation: tuple[str, str],
    row: int = 0,
) -> None:
    labels, (a, b) = campaign.labels, (int(owner[original]), int(owner[copy]))
    text = f"simulation {labels[copy]} {relation[0]} simulation {labels[original]}"
    if a == b or min(a, b) < 0:
        _logger.warning("%s and is counted twice", text)
        return
    raise DataError(
        f"{text}, which is in the {names[a]} part; it is in the {names[b]} part",
        where=campaign.where(int(campaign.index.bounds[copy]) + row),
        fix=relation[1],
    )

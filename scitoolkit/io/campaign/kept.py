"""Moments of the training part of a campaign, cached for files that did not change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.measure import (
    Measured,
    Question,
    keys_of,
    measure_pieces,
    merged,
    pieces_of,
    split_hash,
)
from scitoolkit.io.campaign.rows import Rows
from scitoolkit.io.campaign.saved import load_moments, save_moments

_logger = get_logger(__name__)
_SAMPLED = 1000

Moments = dict[int, Measured]
Share = Callable[[Callable[[int, int], Moments]], list[Moments]]
"""Calls a function with (rank, number of ranks) on each rank; returns the results of all ranks."""


@dataclass(frozen=True)
class Ranks:
    """Communication between the ranks that share the measurement.

    Attributes:
        share: see `Share`.
        first: calls a function on one rank and returns its result on all ranks.
    """

    share: Share = lambda work: [work(0, 1)]
    first: Callable[[Callable[[], Any]], Any] = lambda function: function()


def training_moments(
    campaign: Campaign,
    sets: Mapping[str, Rows],
    blocks: Sequence[range],
    question: Question,
    *,
    cache: Path | None = None,
    sample: bool = False,
    ranks: Ranks | None = None,
) -> tuple[Measured, str]:
    """Return the moments of the training part, and their source.

    Args:
        campaign: the campaign.
        sets: its rows.
        blocks: rows of the training part, each range within one simulation.
        question: the moments to measure.
        cache: folder of cached moments.
        sample: measure only a few rows if moments are not cached, without caching the result.
        ranks: communication between ranks; a single process by default.

    Returns:
        The moments, and `measured`, `saved` (from the cache) or `sample`.

    Raises:
        DataError: values that look like unflagged fill values, or rows that were never written.
    """
    ranks = ranks or Ranks()
    split = split_hash(campaign, blocks)
    if sample:
        blocks = _few(blocks, question.lead)
    pieces = pieces_of(campaign, blocks)
    keys = keys_of(campaign, pieces, question)
    mask = "" if campaign.mask is None else campaign.mask.digest
    asked = [split, asdict(question), list(campaign.channels), mask]
    name = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
    file = None if cache is None else cache / f"statistics_{name}.npz"
    rows, missing = _known(file, keys, ranks)
    if missing:
        wanted = {n: pieces[n] for n in missing}
        shares = ranks.share(
            lambda rank, size: measure_pieces(campaign, sets, wanted, question, share=(rank, size))
        )
        rows |= {n: row for part in shares for n, row in part.items()}
        if file is not None and not sample:
            ranks.first(lambda: save_moments(file, keys, [rows[n] for n in range(len(pieces))]))
    source = "sample" if sample and missing else "measured" if missing else "saved"
    return merged(campaign, pieces, [rows[n] for n in range(len(pieces))], question), source


def _few(blocks: Sequence[range], lead: int) -> list[range]:
    """Return the first rows of the first simulation: a thousandth of all rows."""
    rows = max(lead + 1, sum(map(len, blocks)) // _SAMPLED)
    return [block[: max(rows, lead + 1)] for block in blocks[:1]]


def _known(file: Path | None, keys: Sequence[str], ranks: Ranks) -> tuple[Moments, list[int]]:
    """Return the cached moments by piece number, and the numbers of pieces to measure."""
    saved = {} if file is None else ranks.first(lambda: load_moments(file))
    rows = {n: saved[key] for n, key in enumerate(keys) if key and key in saved}
    missing = [n for n in range(len(keys)) if n not in rows]
    if rows and missing:
        _logger.info("%d of %d pieces changed since they were measured", len(missing), len(keys))
    return rows, missing

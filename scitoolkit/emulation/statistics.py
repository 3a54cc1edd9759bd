"""What normalises the variables: mean, spread and typical change of the training part."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.core.log import get_logger
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.normalized_network import Statistics
from scitoolkit.io.campaign.measure import (
    Measured,
    Question,
    keys_of,
    measure_pieces,
    merged,
    pieces_of,
    split_hash,
)
from scitoolkit.io.campaign.saved import load_moments, save_moments, well_statistics
from scitoolkit.training import current_rank, world_size
from scitoolkit.training.processes import gather_objects, on_rank_zero, raise_together

_logger = get_logger(__name__)
_SAMPLED = 1000


@dataclass
class Found:
    """Statistics of the training part and where they are from.

    Attributes:
        source: `measured`, `saved`, `stats.yaml` or `sample`.
        split: hash of the rows that they were measured over.
    """

    statistics: Statistics
    source: str
    split: str

    def to_json(self) -> dict[str, Any]:
        """Return JSON types: {variable: mean, std, change} where they are single numbers."""
        found = {
            name: {"mean": mean.tolist(), "std": std.tolist()}
            for name, (mean, std) in self.statistics.values.items()
        }
        for name, change in self.statistics.changes.items():
            found[name]["change"] = change.tolist()
        return {"source": self.source, "split": self.split, "variables": found}


def find_statistics(
    data: Data, blocks: Sequence[range], config: EmulationConfig, *, cache: Path | None = None,
    sample: bool = False,
) -> Found:  # fmt: skip
    """Return the statistics of the training part: those of the Well, kept ones, or measured.

    Args:
        data: the opened campaign.
        blocks: samples of the training part, each range within one simulation.
        config: the job.
        cache: folder where they are kept.
        sample: measure a few rows only where nothing is kept, and keep nothing.

    Raises:
        DataError: values that look like unflagged fill values, or frames never written.
    """
    split = split_hash(data.campaign, blocks)
    state = data.layout.state if config.residual else ()
    known = well_statistics(data.campaign) if config.data.lead == 1 else None
    if known is not None:
        return Found(_of_well(known, state), "stats.yaml", split)
    question = _question(data, config)
    if sample:
        blocks = _few(blocks, config.data.lead)
    pieces = pieces_of(data.campaign, blocks)
    keys = keys_of(data.campaign, pieces, question)
    asked = [split, asdict(question), list(data.layout.variables), data.layout.mask]
    name = hashlib.sha256(repr(asked).encode())
    file = None if cache is None else cache / f"statistics_{name.hexdigest()[:16]}.npz"
    rows, missing = _known(file, keys)
    if missing:
        rows |= _measured(data, {n: pieces[n] for n in missing}, question)
        if file is not None and not sample:
            on_rank_zero(lambda: save_moments(file, keys, [rows[n] for n in range(len(pieces))]))
    found = merged(data.campaign, pieces, [rows[n] for n in range(len(pieces))], question)
    source = "sample" if sample and missing else "measured" if missing else "saved"
    return Found(_statistics(data, found, state), source, split)


def measure(data: Data, blocks: Sequence[range], config: EmulationConfig) -> Statistics:
    """Measure the training part once; see `find_statistics`."""
    return find_statistics(data, blocks, config).statistics


def _question(data: Data, config: EmulationConfig) -> Question:
    layout = data.layout
    vectors = tuple(n for n, v in layout.variables.items() if not v.is_field)
    state = layout.state if config.residual else ()
    return Question(config.data.lead, tuple(state), vectors, config.data.allow_suspect)


def _few(blocks: Sequence[range], lead: int) -> list[range]:
    """Return the first rows of the first simulation, a thousandth of all."""
    rows = max(lead + 1, sum(map(len, blocks)) // _SAMPLED)
    return [block[: max(rows, lead + 1)] for block in blocks[:1]]


def _known(file: Path | None, keys: Sequence[str]) -> tuple[dict[int, Measured], list[int]]:
    """Return the kept moments by number, and the numbers of the pieces to measure."""
    kept = {} if file is None else on_rank_zero(lambda: load_moments(file))
    rows = {n: kept[key] for n, key in enumerate(keys) if key and key in kept}
    missing = [n for n in range(len(keys)) if n not in rows]
    if rows and missing:
        _logger.info("%d of %d pieces changed since they were measured", len(missing), len(keys))
    return rows, missing


def _measured(data: Data, pieces: dict[int, Any], question: Question) -> dict[int, Measured]:
    """Return the moments of pieces, each measured by one rank."""
    share = (current_rank(), world_size())
    found, error = _attempt(
        lambda: measure_pieces(data.campaign, data.rows, pieces, question, share=share)
    )
    raise_together(error)
    return {n: row for part in gather_objects(found) for n, row in (part or {}).items()}


def _attempt(
    function: Callable[[], dict[int, Measured]],
) -> tuple[dict[int, Measured] | None, ScitoolkitError | None]:
    try:
        return function(), None
    except ScitoolkitError as error:
        return None, error


def _statistics(data: Data, found: Measured, state: Sequence[str]) -> Statistics:
    for name, variable in data.layout.variables.items():
        if variable.is_field and found.values[name].is_constant:
            _logger.warning("%s is constant in the training part", name)
    results = {n: found.values[n].result() for n in data.layout.variables}
    return Statistics(
        {n: (_tensor(mean), _tensor(scale)) for n, (mean, scale) in results.items()},
        {n: _tensor(found.changes[n].root_mean_square()) if n in found.changes
         else torch.ones(len(results[n][1])) for n in state},
    )  # fmt: skip


def _of_well(known: dict[str, tuple[float, float, float]], state: Sequence[str]) -> Statistics:
    return Statistics(
        {n: (torch.tensor([mean]), torch.tensor([std or 1.0]))
         for n, (mean, std, _) in known.items()},
        {n: torch.tensor([known[n][2]]) for n in state},
    )  # fmt: skip


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values)).float()

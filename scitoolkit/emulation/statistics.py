"""Statistics that normalise the variables: mean, standard deviation and typical change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.ensemble import AnyEmulator
from scitoolkit.emulation.leads import Leads
from scitoolkit.emulation.normalized_network import Statistics
from scitoolkit.emulation.variables import LEAD
from scitoolkit.io.campaign.kept import Ranks, training_moments
from scitoolkit.io.campaign.measure import Measured, Question, split_hash
from scitoolkit.io.campaign.saved import well_statistics
from scitoolkit.training.processes import on_rank_zero, share_work

_logger = get_logger(__name__)


@dataclass
class Found:
    """Statistics of the training split and their origin.

    Attributes:
        source: `measured`, `saved`, `stats.yaml` or `sample`.
        split: hash of the rows that they were measured on.
    """

    statistics: Statistics
    source: str
    split: str

    def to_json(self) -> dict[str, Any]:
        """Return JSON types: source, split, and mean, std and change of each variable."""
        found = {
            name: {"mean": mean.tolist(), "std": std.tolist()}
            for name, (mean, std) in self.statistics.values.items()
        }
        for name, change in self.statistics.changes.items():
            found[name]["change"] = change.tolist()
        return {"source": self.source, "split": self.split, "variables": found}


def find_statistics(
    data: Data,
    blocks: Sequence[range],
    config: EmulationConfig,
    *,
    cache: Path | None = None,
    sample: bool = False,
) -> Found:
    """Return the statistics of the training split: from stats.yaml, from the cache, or measured.

    Args:
        data: the opened campaign.
        blocks: samples of the training split, each range within one simulation.
        config: the job.
        cache: folder of cached statistics.
        sample: if nothing is cached, measure a few rows and do not cache the result.

    Raises:
        DataError: values that look like unflagged fill values, or frames never written.
    """
    split = split_hash(data.campaign, blocks)
    state = data.layout.state if config.residual else ()
    known = well_statistics(data.campaign) if config.data.lead == 1 else None
    if known is not None:
        return Found(_with_lead(_of_well(known, state), data), "stats.yaml", split)
    found, source = training_moments(
        data.campaign,
        data.rows,
        blocks,
        _question(data, config),
        cache=cache,
        sample=sample,
        ranks=Ranks(share_work, on_rank_zero),
    )
    return Found(_with_lead(_statistics(data, found, state), data), source, split)


def guarded_scales(
    emulator: AnyEmulator, statistics: Statistics, weight: float
) -> dict[str, float]:
    """Return the scale of the errors of each output that a guard computes.

    Args:
        emulator: with the guards.
        statistics: of the training split.
        weight: `guarded_weight` of the configuration; with 0 the result is empty.

    Raises:
        ConfigError: a weight although no guard computes an output.
    """
    if not weight:
        return {}
    if not emulator.determined:
        raise ConfigError(
            f"{weight:g}, and no guard computes an output",
            where="guarded_weight",
            allowed="0, or a guard such as pressure_equation",
        )
    found = {}
    for name in emulator.determined:
        typical = statistics.changes.get(name, statistics.values[name][1])
        found[name] = float(typical.square().mean().sqrt()) / weight**0.5
    return found


def find_leads(
    data: Data,
    blocks: Sequence[range],
    config: EmulationConfig,
    *,
    cache: Path | None = None,
    sample: bool = False,
) -> Leads | None:
    """Return the leads and the growth of changes with the lead; None for a single lead.

    Args:
        data: the opened campaign.
        blocks: samples of the training split, each range within one simulation.
        config: the job.
        cache: folder of cached statistics.
        sample: measure a few rows.
    """
    if not config.data.leads:
        return None
    changes = {}
    for lead in config.data.leads:
        section = config.data.model_copy(update={"lead": lead})
        settings = config.model_copy(update={"data": section})
        found = find_statistics(data, blocks, settings, cache=cache, sample=sample)
        changes[lead] = {
            n: float(c.square().mean().sqrt()) for n, c in found.statistics.changes.items()
        }
    base = changes[config.data.lead]
    growth = {
        lead: {n: size / base[n] for n, size in each.items() if size and base[n]}
        for lead, each in changes.items()
    }
    return Leads(tuple(config.data.leads), growth)


def measure(data: Data, blocks: Sequence[range], config: EmulationConfig) -> Statistics:
    """Return the statistics of the training split; see `find_statistics`."""
    return find_statistics(data, blocks, config).statistics


def _question(data: Data, config: EmulationConfig) -> Question:
    layout = data.layout
    vectors = tuple(n for n, v in layout.variables.items() if not v.is_field)
    state = layout.state if config.residual else ()
    return Question(config.data.lead, tuple(state), vectors, config.data.allow_suspect)


def _statistics(data: Data, found: Measured, state: Sequence[str]) -> Statistics:
    for name, variable in data.layout.variables.items():
        if variable.is_field and found.values[name].is_constant:
            _logger.warning("%s is constant in the training part", name)
    results = {n: found.values[n].result() for n in data.layout.variables}
    return Statistics(
        {n: (_tensor(mean), _tensor(scale)) for n, (mean, scale) in results.items()},
        {
            n: _tensor(found.changes[n].root_mean_square())
            if n in found.changes
            else torch.ones(len(results[n][1]))
            for n in state
        },
    )


def _with_lead(statistics: Statistics, data: Data) -> Statistics:
    """Add mean and standard deviation of the leads if there are several."""
    leads = data.layout.leads
    if not leads:
        return statistics
    told = {LEAD: (_tensor(np.mean([leads], 1)), _tensor(np.std([leads], 1)))}
    return Statistics({**statistics.values, **told}, statistics.changes)


def _of_well(known: dict[str, tuple[float, float, float]], state: Sequence[str]) -> Statistics:
    return Statistics(
        {
            n: (torch.tensor([mean]), torch.tensor([std or 1.0]))
            for n, (mean, std, _) in known.items()
        },
        {n: torch.tensor([known[n][2]]) for n in state},
    )


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values)).float()

"""Statistics that normalise the variables: mean, standard deviation and typical change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.ensemble import AnyEmulator
from scitoolkit.emulation.leads import Leads
from scitoolkit.emulation.normalized_network import Statistics
from scitoolkit.emulation.variables import LEAD, NOISE
from scitoolkit.io.campaign.kept import Ranks, training_moments
from scitoolkit.io.campaign.measure import Measured, Question, split_hash
from scitoolkit.io.campaign.saved import well_statistics
from scitoolkit.training.processes import on_rank_zero, share_work

_logger = get_logger(__name__)
_SHARP = 1e-6


@dataclass
class MeasuredStatistics:
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
        variables = {
            name: {"mean": mean.tolist(), "std": std.tolist()}
            for name, (mean, std) in self.statistics.values.items()
        }
        for name, change in self.statistics.changes.items():
            variables[name]["change"] = change.tolist()
        return {"source": self.source, "split": self.split, "variables": variables}


def find_statistics(
    data: Data,
    blocks: Sequence[range],
    config: EmulationConfig,
    *,
    cache: Path | None = None,
    sample: bool = False,
) -> MeasuredStatistics:
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
    of_well = well_statistics(data.campaign) if config.data.lead == 1 else None
    if of_well is not None:
        return MeasuredStatistics(_with_lead(_of_well(of_well, state), data), "stats.yaml", split)
    measured, source = training_moments(
        data.campaign,
        data.rows,
        blocks,
        _question(data, config),
        cache=cache,
        sample=sample,
        ranks=Ranks(share_work, on_rank_zero),
    )
    return MeasuredStatistics(_with_lead(_statistics(data, measured, state), data), source, split)


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
    scales = {}
    for name in emulator.determined:
        typical = statistics.changes.get(name, statistics.values[name][1])
        if size := float(typical.square().mean().sqrt()):
            # Errors are divided by the scale and squared: this is the weight in the loss.
            scales[name] = size / weight**0.5
    return scales


def loss_weights(
    config: EmulationConfig,
    components: Mapping[str, Sequence[str]],
    emulator: Emulator,
    *,
    sample: bool = False,
) -> dict[str, float]:
    """Return the weights of outputs in the loss that are not 1.

    An output that did not change in the training part has weight 0: the emulator returns it as it
    is, and nothing about it is learned.

    Args:
        config: the job.
        components: {name in the configuration: its variables}.
        emulator: with its normalisation.
        sample: it was measured on a few samples, in which outputs may rest that change later.

    Raises:
        ConfigError: a weight of something else than an output that is in the loss, or no output has
            a weight above 0.
        DataError: no output changes in the training part.
    """
    learned = [v.name for v in emulator.learned]
    in_loss = [*learned, *(emulator.determined if config.guarded_weight else ())]
    weights: dict[str, float] = {}
    for name, weight in config.loss_weights.items():
        variables = components.get(name, (name,))
        if other := [v for v in variables if v not in in_loss]:
            raise ConfigError(
                f"{other[0]} is not in the loss",
                where="loss_weights",
                allowed=", ".join(in_loss),
                fix="guarded_weight=1" if other[0] in emulator.determined else "",
            )
        weights |= dict.fromkeys(variables, weight)
    scales = zip(learned, emulator.output_scales(), strict=True)
    steady = [name for name, scale in scales if not (sample or scale.any())]
    if len(steady) == len(in_loss):
        raise DataError(
            f"{', '.join(steady)} never change in the training part: nothing can be learned",
            where="data.outputs",
            fix="other outputs, or simulations in which they change",
        )
    if steady:
        _logger.warning("never change in the training part, and stay so: %s", ", ".join(steady))
    weights |= dict.fromkeys(steady, 0.0)
    if not any(weights.get(name, 1.0) for name in in_loss):
        raise ConfigError(
            "no output that changes has a weight above 0",
            where="loss_weights",
            allowed="one of " + ", ".join(n for n in in_loss if n not in steady),
        )
    return {name: weight for name, weight in weights.items() if weight != 1.0}


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
        of_lead = find_statistics(data, blocks, settings, cache=cache, sample=sample)
        changes[lead] = {
            n: float(c.square().mean().sqrt()) for n, c in of_lead.statistics.changes.items()
        }
    base = changes[config.data.lead]
    for name in (
        n for lead in changes.values() for n, size in lead.items() if size and not base[n]
    ):
        raise DataError(
            f"{name} changes over other leads and not over {config.data.lead}",
            where="data.lead",
            allowed=f"one of data.leads {config.data.leads} over which it changes",
        )
    growth = {
        lead: {n: size / base[n] for n, size in sizes.items() if size and base[n]}
        for lead, sizes in changes.items()
    }
    return Leads(tuple(config.data.leads), growth)


def measure(data: Data, blocks: Sequence[range], config: EmulationConfig) -> Statistics:
    """Return the statistics of the training split; see `find_statistics`."""
    return find_statistics(data, blocks, config).statistics


def _question(data: Data, config: EmulationConfig) -> Question:
    layout = data.layout
    vectors = tuple(n for n, v in layout.variables.items() if not v.is_field)
    state = layout.state if config.residual else ()
    valid = layout.mask_of_step
    # Other inputs, such as a wind over the ice, have values everywhere.
    fields = [v.name for v in layout.outputs if v.is_field] if valid else []
    return Question(
        config.data.lead, tuple(state), vectors, config.data.allow_suspect, valid, tuple(fields)
    )


def _statistics(data: Data, measured: Measured, state: Sequence[str]) -> Statistics:
    for name, variable in data.layout.variables.items():
        if variable.is_field and measured.values[name].is_constant.all():
            _logger.warning("%s is constant in the training part", name)
    valid = data.layout.mask_of_step
    if valid and (empty := [n for n in data.layout.variables if n not in measured.values]):
        raise DataError(
            f"{empty[0]} has no value where {valid} is 1 in the training part", where=data.where
        )
    results = {n: measured.values[n].result() for n in data.layout.variables}
    if valid:
        _require_binary(measured, valid, data.where)
    changes = {
        n: measured.changes[n].root_mean_square()
        if n in measured.changes
        else np.ones_like(results[n][1])
        for n in state
    }
    # An output whose change is not learned is its mean where it has one value only.
    for variable in data.layout.outputs:
        moments = measured.values[variable.name]
        if variable.name not in state and moments.is_constant.any():
            changes[variable.name] = np.where(moments.is_constant, 0.0, moments.result()[1])
    return Statistics(
        {n: (_tensor(mean), _tensor(scale)) for n, (mean, scale) in results.items()},
        {n: _tensor(change) for n, change in changes.items()},
    )


def _require_binary(measured: Measured, name: str, where: str) -> None:
    """Refuse a mask with other values than 0 and 1, whose mean square is not its mean."""
    mean, square = measured.values[name].result()[0], measured.values[name].root_mean_square() ** 2
    if not (np.abs(square - mean) <= _SHARP * mean).all():
        raise DataError(
            f"a mean of {float(mean[0]):g} and a mean square of {float(square[0]):g}",
            where=f"{where}: data.mask_of_step, {name}",
            allowed="values of 0 and 1, whose mean and mean square are equal",
            fix="write 1 where a fraction is above a threshold",
        )


def _with_lead(statistics: Statistics, data: Data) -> Statistics:
    """Add mean and standard deviation of the leads if there are several, and of the noise."""
    leads, noise = data.layout.leads, data.layout.noise
    told: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    if leads:
        told[LEAD] = _tensor(np.mean([leads], 1)), _tensor(np.std([leads], 1))
    if noise:
        told[NOISE] = torch.zeros(noise), torch.ones(noise)
    return Statistics({**statistics.values, **told}, statistics.changes)


def _of_well(stated: dict[str, tuple[float, float, float]], state: Sequence[str]) -> Statistics:
    return Statistics(
        {
            n: (torch.tensor([mean]), torch.tensor([std or 1.0]))
            for n, (mean, std, _) in stated.items()
        },
        {n: torch.tensor([stated[n][2]]) for n in state},
    )


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values)).float()

"""Fine-tuning of emulators: weights of a trained one, further variables, replayed simulations."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.content import find_content
from scitoolkit.core.data_differences import Accepts, compare, refuse
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.units import same_unit
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data, open_data
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.ensemble import members_of
from scitoolkit.emulation.models.config import FieldModelConfig
from scitoolkit.emulation.normalized_network import (
    CONDITION_WIDTH,
    MEASURED,
    POOL_CHANNELS,
    VECTOR_CHANNELS,
    NormalizedNetwork,
    condition_network,
)
from scitoolkit.emulation.transfer import same_weights_on
from scitoolkit.emulation.variables import Layout, Variable
from scitoolkit.surrogate.ensemble import member_seeds
from scitoolkit.surrogate.fine_tuning import adopt_channels, freeze

log = get_logger(__name__)
SETTINGS = ("model", "diagnostic", "residual", "conditioning", "transport", "coordinates")
DATA_SETTINGS = ("lead", "leads", "history", "sample_dim")
_CLOSE = 1e-3, 1e-6
"""Largest change of an output by adopting weights, over its scale and over its largest value: no
more than rounding."""


def open_with_replay(config: EmulationConfig, path: Any, cache: Path | None, keep: bool) -> Data:
    """Open the training data, followed by the simulations of `start.replay`.

    Raises:
        DataError: the replayed files lack a variable, or the former ones become other simulations.
    """
    data = open_data(config.data, path, cache=cache, keep=keep)
    replay = [] if config.start is None else list(config.start.replay)
    if not replay:
        return data
    own, files = data.campaign.index, data.campaign.files
    data.close()
    both = open_data(config.data, [*files, *replay], cache=cache, keep=keep)
    index, count = both.campaign.index, own.num_simulations
    if not np.array_equal(index.bounds[: count + 1], own.bounds):
        both.close()
        raise DataError(
            "the replayed files continue the simulations of the new ones",
            where="start.replay",
            allowed="files of other simulations",
            fix="data.files=simulations, if each file is one",
        )
    both.own_simulations = count
    both.replayed = _drawn(config, count, index.num_simulations)
    return both


def _drawn(config: EmulationConfig, first: int, stop: int) -> tuple[int, ...]:
    """Return the replayed simulations, in ascending order."""
    assert config.start is not None
    number = config.start.replay_simulations
    if number is None:
        return tuple(range(first, stop))
    if number > stop - first:
        raise DataError(
            f"start.replay has {stop - first} simulations, {number} are configured",
            where="start.replay_simulations",
            fix=f"start.replay_simulations={stop - first}",
        )
    drawn = np.random.default_rng(config.seed).choice(stop - first, number, replace=False)
    return tuple(int(first + k) for k in np.sort(drawn))


def trained_members(config: EmulationConfig, data: Data) -> list[Emulator]:
    """Return the emulators that a training starts from, on the grid of its data.

    Raises:
        DataError: data whose units, step, dims or variables are not those of the weights.
        ConfigError: settings under which the weights would mean something else.
    """
    assert config.start is not None
    folder = ModelFolder(find_content("surrogates", config.start.path))
    former = folder.config(EmulationConfig)
    _require_settings(config, former)
    emulator = surrogate.load(folder.path, former)
    _require_data(config, data, emulator.layout, folder)
    members, wanted = members_of(emulator), len(member_seeds(config))
    if wanted != len(members) and wanted > 1:
        raise ConfigError(
            f"{wanted} members, the weights of start.path have {len(members)}",
            where="uncertainty.members",
            allowed="members that start from different weights",
            fix=f"uncertainty.members={len(members)}",
        )
    if config.boundary != former.boundary:
        log.warning("boundary differs from that of start.path, %s", former.boundary)
    layout = data.layout
    if (layout.grid, layout.coordinates) == (emulator.layout.grid, emulator.layout.coordinates):
        return members
    return members_of(same_weights_on(emulator, former, layout))


def _require_settings(config: EmulationConfig, former: EmulationConfig) -> None:
    """Compare the settings under which the weights were trained.

    Raises:
        ConfigError: naming the first that differs.
    """
    if former.low_rank is not None:
        raise ConfigError(
            "the weights of start.path are of low rank",
            where="start.path",
            fix=f"start.path={former.low_rank.of}, from which they began",
        )
    now, before = config.model_dump(mode="json"), former.model_dump(mode="json")
    pairs = [(key, now[key], before[key]) for key in SETTINGS]
    pairs += [(f"data.{key}", now["data"][key], before["data"][key]) for key in DATA_SETTINGS]
    scales, former_scales = config.data.parameter_scales, former.data.parameter_scales
    pairs += [
        (f"data.parameters.{n}", scales[n], former_scales[n]) for n in scales if n in former_scales
    ]
    noise, own = (0 if c.uncertainty is None else c.uncertainty.noise for c in (former, config))
    pairs.append(("uncertainty.noise", own, noise))
    for key, ours, theirs in pairs:
        if ours != theirs:
            inner = _first_difference(ours, theirs)
            raise ConfigError(
                f"{key}{inner[0]} is {inner[1]!r}, the weights of start.path have {inner[2]!r}",
                where=f"{key}{inner[0]}",
                fix=f"{key}: {theirs}",
            )


def _first_difference(ours: Any, theirs: Any) -> tuple[str, Any, Any]:
    """Return (key within a section, our value, theirs) of the first difference."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.get("name") != theirs.get("name"):
            return ".name", ours.get("name"), theirs.get("name")
        for key in [*theirs, *ours]:
            if ours.get(key) != theirs.get(key):
                return f".{key}", ours.get(key), theirs.get(key)
    return "", ours, theirs


def _require_data(
    config: EmulationConfig, data: Data, trained: Layout, folder: ModelFolder
) -> None:
    """Compare the data with those of the weights.

    Raises:
        DataError: units, step, dims, mask or variables that differ.
    """
    assert config.start is not None
    facts, layout = folder.facts(), data.layout
    if facts is not None:
        # The normalisation is that of the weights, so that units have to be equal.
        step: Literal["same", "any"] = "same" if config.data.lead else "any"
        accepts = Accepts(grid="any", step=step, convert=False, optional="any")
        refuse(compare(replace(facts, parameters={}), data.facts, accepts), data.where)
    problems = []
    for name, variable in _named(trained).items():
        now = _named(layout).get(name)
        if now is None:
            problems.append((f"no variable {name}", "the variables of the weights"))
        elif now.dims != variable.dims or (not now.is_field and now.shape != variable.shape):
            problems.append((f"dims {now.dims} of {name}", str(variable.dims)))
        elif variable.units and now.units and not same_unit(variable.units, now.units):
            problems.append((f"unit {now.units} of {name}", variable.units))
    for role in ("inputs", "outputs"):
        names = {v.name for v in getattr(layout, role)}
        if gone := [v.name for v in getattr(trained, role) if v.name not in names]:
            problems.append((f"{', '.join(gone)} not among the {role}", f"{role} of the weights"))
    if list(layout.grid) != list(trained.grid):
        problems.append((f"grid {list(layout.grid)}", str(list(trained.grid))))
    if trained.mask and (layout.mask, layout.grid) != (trained.mask, trained.grid):
        problems.append(("another mask", "the mask of the weights"))
    if layout.mask_of_step != trained.mask_of_step:
        own = trained.mask_of_step or "none"
        problems.append((f"mask_of_step {layout.mask_of_step or 'none'}", f"mask_of_step {own}"))
    if problems:
        raise DataError(
            "; ".join(what for what, _ in problems),
            where=f"{data.where}, with the weights of start.path",
            allowed="; ".join(dict.fromkeys(allowed for _, allowed in problems)),
        )
    new = dict.fromkeys(v.stored_as for n, v in _named(layout).items() if n not in _named(trained))
    if new and config.start.new_variables == "refuse":
        raise DataError(
            f"the weights of {config.start.path} do not know {', '.join(new)}",
            where=data.where,
            allowed=", ".join(_named(trained)),
            fix="start.new_variables=add",
        )


def _named(layout: Layout) -> dict[str, Variable]:
    return {v.name: v for v in (*layout.inputs, *layout.outputs)}


def start_from(model: Emulator, source: Emulator, config: EmulationConfig) -> None:
    """Give an untrained emulator the weights and the normalisation of a trained one.

    The normalisation of variables that only `model` has stays.

    Args:
        model: with the statistics of the new data.
        source: on the same grid.
        config: the job.

    Raises:
        ConfigError: the network cannot be given further variables.
    """
    assert config.start is not None
    pairs = [(model.advance, source.advance, config.model)]
    if model.diagnose is not None and source.diagnose is not None:
        assert config.diagnostic is not None
        pairs.append((model.diagnose, source.diagnose, config.diagnostic.model))
    for part, former, section in pairs:
        _adopt_statistics(part, former)
        _adopt_layers(part, former)
        untrained = copy.deepcopy(part.network.state_dict())
        for interleaved in (False, True):
            _adopt_network(part, former, section, interleaved=interleaved)
            if not (other := _other_outputs(part, former)):
                break
        if other:
            raise ConfigError(
                f"model {section.name} returns another {other[0]} with the further variables",
                where="start.new_variables",
                allowed="networks whose layers read channels after their other features",
                fix="the variables of the weights, or a training from scratch",
            )
        if config.start.new_variables == "random":
            part.network.load_state_dict(untrained)
            _adopt_network(part, former, section, interleaved=interleaved, random_inputs=True)
    freeze(model, config.start.frozen)


@torch.no_grad()
def _adopt_statistics(part: NormalizedNetwork, former: NormalizedNetwork) -> None:
    for buffer in MEASURED:
        new, old = getattr(part, buffer), getattr(former, buffer)
        role = "outputs" if buffer.startswith("out_") else "inputs"
        after, before = getattr(part.layout, role), getattr(former.layout, role)
        values = dict(
            zip([v.name for v in before], old.split([v.size for v in before]), strict=True)
        )
        for variable, place in zip(after, new.split([v.size for v in after]), strict=True):
            if variable.name in values:
                old_values = values[variable.name]
                # What never changed in the former data, and does now, is learned again.
                rested = old_values == 0 if buffer == "out_scale" else torch.zeros(()).bool()
                place.copy_(torch.where(rested, place, old_values))


def _adopt_network(
    part: NormalizedNetwork,
    former: NormalizedNetwork,
    section: FieldModelConfig,
    *,
    interleaved: bool,
    random_inputs: bool = False,
) -> None:
    width = [CONDITION_WIDTH] if part.conditions else []

    def build(inputs: int, outputs: int) -> nn.Module:
        return section.build(inputs, outputs, part.padding, *width)

    adopt_channels(
        part.network,
        former.network,
        build,
        (_inputs_of(former), _inputs_of(part)),
        (_outputs_of(former), _outputs_of(part)),
        interleaved=interleaved,
        random_inputs=random_inputs,
    )


def _adopt_layers(part: NormalizedNetwork, former: NormalizedNetwork) -> None:
    """Copy the layers from vectors to channels and to the condition, and those to vectors."""
    vectors = _values(former, former.vectors_in), _values(part, part.vectors_in)
    conditions = _values(former, former.conditions_in), _values(part, part.conditions_in)
    results = _results(former), _results(part)
    same: tuple[list[object], list[object]] = ([], [])
    if isinstance(part.embed, nn.Linear) and isinstance(former.embed, nn.Linear):
        size = part.embed.out_features
        adopt_channels(part.embed, former.embed, lambda i, _: nn.Linear(i, size), vectors, same)
    if part.condition is not None and former.condition is not None:
        adopt_channels(
            part.condition, former.condition, lambda i, _: condition_network(i), conditions, same
        )
    if part.pool is not None and former.pool is not None:
        width = part.pool.in_features
        adopt_channels(part.pool, former.pool, lambda _, o: nn.Linear(width, o), same, results)


def _results(part: NormalizedNetwork) -> list[object]:
    """Return (name, position) of each value of the vector outputs."""
    variables = [part.layout.outputs[i] for i in part.vectors_out]
    return [(v.name, k) for v in variables for k in range(v.size)]


def _values(part: NormalizedNetwork, which: Sequence[int]) -> list[object]:
    """Return (name, position) of each value of some inputs."""
    variables = [part.layout.inputs[i] for i in which]
    return [(v.name, k) for v in variables for k in range(v.size)]


def _inputs_of(part: NormalizedNetwork) -> list[object]:
    """Return a name of each input channel, in the order of `_channels_in`."""
    fields: list[object] = [part.layout.inputs[i].name for i in part.fields_in]
    vectors = _values(part, part.vectors_in)
    if len(vectors) > VECTOR_CHANNELS:
        vectors = [("embedded", k) for k in range(VECTOR_CHANNELS)]
    positions = [("position", k) for k in range(part.position.shape[0])]
    return [*fields, *vectors, *positions]


def _outputs_of(part: NormalizedNetwork) -> list[object]:
    """Return a name of each output channel, in the order of `_outputs`."""
    names = [part.layout.outputs[i].name for i in part.fields_out]
    carried = [part.layout.outputs[i].name for i in part.fields_out if part.source[i] >= 0]
    moves: list[object] = [(n, d) for n in carried for d in range(part.space)]
    pooled: list[object] = [("pooled", k) for k in range(POOL_CHANNELS)]
    vectors = _results(part) if part.pool is None else pooled
    return [*names, *(moves if part.transports else []), *vectors]


@torch.no_grad()
def _other_outputs(part: NormalizedNetwork, former: NormalizedNetwork) -> list[str]:
    """Return the outputs of both networks that differ on the same random inputs."""
    generator = torch.Generator().manual_seed(0)
    sizes = [v.size for v in part.layout.inputs]
    inputs = {}
    for variable, mean, scale in zip(
        part.layout.inputs, part.mean.split(sizes), part.scale.split(sizes), strict=True
    ):
        # One number for all cells of a field, one for each value of a vector.
        shape = (2, math.prod(variable.shape))
        values = mean + scale * torch.randn(shape, generator=generator)
        inputs[variable.name] = values.reshape(2, *variable.shape)
    new, old = (_answers(p, inputs) for p in (part, former))
    part.train()
    scales = former.out_scale.split([v.size for v in former.layout.outputs])
    limits = {n: _CLOSE[0] * s.max() for n, s in zip(old, scales, strict=True)}
    moves = dict(zip(new, part.out_scale.split([v.size for v in part.layout.outputs]), strict=True))
    rested = [n for n, s in zip(old, scales, strict=True) if n in new and (moves[n] != s).any()]
    # Not `>`, which NaN passes. A guard may compute an output that was learned.
    return [
        name
        for name in old
        if name in new
        and name not in rested
        and not (new[name] - old[name]).abs().max()
        <= limits[name] + _CLOSE[1] * old[name].abs().max()
    ]


def _answers(part: NormalizedNetwork, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    outputs = part.eval()(*(inputs[v.name].clone() for v in part.layout.inputs))
    return {v.name: values for v, values in zip(part.layout.outputs, outputs, strict=True)}

"""A training that starts from a trained model: what has to be equal, and the weights it adopts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xarray as xr

from scitoolkit.core.errors import ConfigError
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.facts import require_like
from scitoolkit.superresolution.network import FieldNetwork
from scitoolkit.superresolution.surrogate import SuperresolutionSurrogate
from scitoolkit.surrogate import Trained
from scitoolkit.surrogate.config import TrainedStart
from scitoolkit.surrogate.ensemble import member_seeds
from scitoolkit.surrogate.fine_tuning import freeze


def trained_members(
    config: SuperresolutionConfig, former: Trained, dataset: xr.Dataset, where: str
) -> Sequence[FieldNetwork]:
    """Return the trained networks, one for each member of the new model.

    Args:
        config: of the new model.
        former: the surrogate of `start.path`.
        dataset: a simulation of the new training.
        where: its name, for messages.

    Raises:
        ConfigError: another number of members.
        DataError: fields of other units or kinds; they would mean something else to the weights.
    """
    surrogate, wanted = SuperresolutionSurrogate(former.model), len(member_seeds(config))
    if wanted != len(surrogate.members):
        raise ConfigError(
            f"{wanted} members, the weights of start.path have {len(surrogate.members)}",
            where="members",
            fix=f"members={len(surrogate.members)}",
        )
    assert former.facts is not None
    require_like(dataset, former.facts, surrogate.header.fields, where)
    return surrogate.members


def begin_from(source: FieldNetwork, model: FieldNetwork, start: TrainedStart) -> None:
    """Copy weights and normalisation, so that the new model begins with the old one's outputs.

    Raises:
        ConfigError: the weights are of another architecture, other fields or dims, or other steps;
            `start.frozen` names no parameter, or leaves none to train.
    """
    before = _meaning(source)
    for key, value in _meaning(model).items():
        if value != before[key]:
            raise ConfigError(
                f"{value}, the weights of start.path have {before[key]}",
                where=key,
                fix=f"{key} as in start.path",
            )
    # The warm-up of the equations' weight begins again.
    model.load_state_dict({**source.state_dict(), "steps_seen": model.steps_seen})
    freeze(model, start.frozen)


def _meaning(network: FieldNetwork) -> dict[str, Any]:
    """Return what the weights depend on, by key; `average` changes predictions, not weights."""
    head, config = network.header, network.config.model_dump(exclude={"average"})
    return {
        **{f"model.{key}": value for key, value in config.items()},
        "data.fields": head.fields,
        "data.dims": head.dims,
        "data.walled": head.layout.walled,
        "data.periodic": head.closed,
        "crop.every": head.layout.every,
        "crop.coarser": head.coarser,
    }

"""Search trials of the forecasting job: cached preparation and validation scores.

Reading the field and fitting the closed-form part take much longer than training a small network
and are the same for all networks, so they are cached between the trials of a process.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.fields import open_split
from scitoolkit.forecasting.fitting import Prepared, begin_network, judge_network, prepare
from scitoolkit.forecasting.forecasters.lstm import LstmCorrection
from scitoolkit.training import Trainer

_NETWORK_KEYS = {"model": {"hidden", "layers", "head", "architecture"}}
_EXCLUDED_KEYS: Any = {
    "run": True,
    "workflow": True,
    "ensemble": True,
    "training": True,
    "seed": True,
    **_NETWORK_KEYS,
}
_CACHE_SIZE = 4
_cache: dict[str, Prepared] = {}


def prepared(config: ForecastingConfig) -> Prepared:
    """Return the state before training: field, split, closed form and untrained networks.

    The last four results are cached and reused if only the network or its training differ.
    """
    key = _key(config)
    if key not in _cache:
        field, parts = open_split(config)
        while len(_cache) >= _CACHE_SIZE:
            del _cache[next(iter(_cache))]
        # The job's seed initialises the networks; the cached decomposition must not depend on it.
        _cache[key] = prepare(field, parts, config.model_copy(update={"seed": 0}))
    found = _cache[key]
    if found.correction is None:
        return found
    return dataclasses.replace(found, correction=begin_network(found, config))


def _key(config: ForecastingConfig) -> str:
    plain = config.model_dump(mode="json", exclude=_EXCLUDED_KEYS)
    plain["changed"] = config.data.changed
    return json.dumps(plain, sort_keys=True)


def validation_scores(
    found: Prepared, correction: LstmCorrection, config: ForecastingConfig, trainer: Trainer
) -> Mapping[str, float]:
    """Return metrics on the validation part; RMSEs are in the unit of the field.

    `validation_rmse` is the RMSE with the full correction by the network,
    `validation_rmse_supported` with the correction scaled by `lead_factors`,
    `validation_rmse_base` without it; `validation_loss` is the loss of the network.
    """
    judged = judge_network(found, correction, config)
    return {
        "validation_rmse": judged.full,
        "validation_rmse_supported": judged.entry.validation,
        "validation_rmse_base": found.selection.winner.validation,
        "validation_loss": float(trainer.best["loss"]) if trainer.best else float("nan"),
    }

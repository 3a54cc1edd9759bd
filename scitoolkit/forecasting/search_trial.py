"""What a search needs of a forecaster: a quick trial, a score to compare, a cost beforehand.

Reading the field and fitting the closed-form part take many times as long as training a small
network, and are the same for all networks: they are kept between the trials of a process.
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
_NOT_PREPARED: Any = {
    "run": True, "workflow": True, "ensemble": True, "training": True, "seed": True,
    **_NETWORK_KEYS,
}  # fmt: skip
_MOST_KEPT = 4
_kept: dict[str, Prepared] = {}


def prepared(config: ForecastingConfig) -> Prepared:
    """Return what is known before training, with untrained networks.

    The last results are kept, and used again when only the network or its training differ.
    """
    key = _key(config)
    if key not in _kept:
        field, parts = open_split(config)
        while len(_kept) >= _MOST_KEPT:
            del _kept[next(iter(_kept))]
        # The seed is that of the networks; the decomposition has another.
        _kept[key] = prepare(field, parts, config.model_copy(update={"seed": 0}))
    found = _kept[key]
    if found.correction is None:
        return found
    return dataclasses.replace(found, correction=begin_network(found, config))


def _key(config: ForecastingConfig) -> str:
    plain = config.model_dump(mode="json", exclude=_NOT_PREPARED)
    plain["changed"] = config.data.changed
    return json.dumps(plain, sort_keys=True)


def validation_scores(
    found: Prepared, correction: LstmCorrection, config: ForecastingConfig, trainer: Trainer
) -> Mapping[str, float]:
    """Return figures of the validation part, in the unit of the field where they have one.

    `validation_rmse` is that of the forecast with all of the network's correction,
    `validation_rmse_supported` with as much of it as has shown skill, `validation_rmse_base` with
    none; `validation_loss` is the network's own loss.
    """
    judged = judge_network(found, correction, config)
    return {
        "validation_rmse": judged.full,
        "validation_rmse_supported": judged.entry.validation,
        "validation_rmse_base": found.selection.winner.validation,
        "validation_loss": float(trainer.best["loss"]) if trainer.best else float("nan"),
    }

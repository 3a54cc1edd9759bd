"""What a search needs of a forecaster: a quick trial, a score to compare, a cost beforehand.

Reading the field and fitting the closed-form part take many times as long as training a small
network, and are the same for all networks: they are kept between the trials of a process.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from scitoolkit.forecasting import fitting
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import FieldData, Parts, divide, read_field
from scitoolkit.forecasting.metrics import rmse_per_lead
from scitoolkit.forecasting.selection import lead_factors
from scitoolkit.forecasting.surrogate import ForecastSurrogate, make_network
from scitoolkit.training import Trainer

_NETWORK_KEYS = {"model": {"hidden", "layers", "head", "architecture"}}
_NOT_PREPARED: Any = {
    "run": True, "workflow": True, "ensemble": True, "training": True, "seed": True,
    **_NETWORK_KEYS,
}  # fmt: skip
_kept: dict[str, tuple[Any, ...]] = {}


def prepared(
    config: ForecastingConfig,
) -> tuple[FieldData, Parts, ForecastSurrogate, fitting.Choice, Any]:
    """Return (data, parts, surrogate with an untrained network, choice of the base, POD).

    The last result is kept, and used again when only the network or its training differ.
    """
    key = _key(config)
    if key not in _kept:
        data = read_field(config.data)
        parts = divide(data, config)
        _kept.clear()
        # The seed is that of the networks; the decomposition has another.
        same = config.model_copy(update={"seed": 0})
        _kept[key] = (data, parts, *fitting.prepare(data, parts, same))
    data, parts, surrogate, choice, pod = _kept[key]
    modes, seasonal = len(surrogate.modes), surrogate.header["seasonal_inputs"]
    fresh = dataclasses.replace(
        surrogate,
        network=make_network(config, modes, seasonal),
        header=dict(surrogate.header),
        factors=np.ones(config.leads),
    )
    return data, parts, fresh, copy.deepcopy(choice), pod


def _key(config: ForecastingConfig) -> str:
    plain = config.model_dump(mode="json", exclude=_NOT_PREPARED)
    plain["changed"] = config.data.path.stat().st_mtime_ns if config.data.path.exists() else 0
    return json.dumps(plain, sort_keys=True)


def validation_scores(
    surrogate: ForecastSurrogate, parts: Parts, trainer: Trainer
) -> Mapping[str, float]:
    """Return figures of the validation part, in the unit of the field where they have one.

    `validation_rmse` is that of the forecast with all of the network's correction,
    `validation_rmse_supported` with as much of it as has shown skill, `validation_rmse_base` with
    none; `validation_loss` is the network's own loss.
    """
    windows, weights = parts.windows["validation"], surrogate.weights
    truth, base = windows.targets(), surrogate.base.predict(windows)
    correction = surrogate.network_correction(windows)
    factors = lead_factors(truth - base, correction, weights)

    def rmse(forecast: np.ndarray) -> float:
        return float(np.sqrt((rmse_per_lead(truth, forecast, weights) ** 2).mean()))

    return {
        "validation_rmse": rmse(base + correction),
        "validation_rmse_supported": rmse(base + factors[:, None] * correction),
        "validation_rmse_base": rmse(base),
        "validation_loss": float(trainer.best["loss"]) if trainer.best else float("nan"),
    }

"""Inputs and outputs of an exported forecast: one array per variable, with its training range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from logging import Logger
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.traced import ArraySpec
from scitoolkit.forecasting.coding import VariableCode
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.fields import read_variables, regressors
from scitoolkit.forecasting.surrogate import ForecastSurrogate

log: Logger = get_logger(__name__)


class PhysicalForecast(nn.Module):
    """Forecast in physical units; see `forecasting.coding`.

    The inputs are (B, inputs, cell) of each variable, seasons (B, inputs + leads) and, if used,
    parameters (B, parameter) and drivers (B, inputs + leads, driver). The outputs are
    (B, leads, cell) of each variable.

    Args:
        inner: maps coded values, input seasons and output seasons to coded values.
        found: surrogate that provides the coding.
    """

    effects: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, inner: nn.Module, surrogate: ForecastSurrogate) -> None:
        super().__init__()
        self.inner = inner
        self.inputs: int = surrogate.setting.inputs
        coding = surrogate.coding
        self.codes: tuple[VariableCode, ...] = coding.fields
        self.constants: tuple[VariableCode, ...] = coding.variables[len(coding.fields) :]
        self.driven: bool = bool(coding.drivers)
        stated = np.array([d[1:] for d in coding.drivers], np.float32).reshape(-1, 2)
        self.register_buffer("mean", torch.from_numpy(stated[:, 0].copy()))
        self.register_buffer("deviation", torch.from_numpy(stated[:, 1].copy()))
        self.register_buffer("effects", torch.from_numpy(np.array(coding.effects, np.float32)))

    def forward(self, *arrays: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the forecast of each variable; a single tensor for one variable."""
        count, inputs = len(self.codes), self.inputs
        seasons, rest = arrays[count], list(arrays[count + 1 :])
        parts = [_encode(code, x) for code, x in zip(self.codes, arrays, strict=False)]
        if self.constants:
            parameters = rest.pop(0)
            parts += [
                _encode(code, parameters[:, k, None, None]).expand(-1, inputs, code.cells)
                for k, code in enumerate(self.constants)
            ]
        values = torch.cat(parts, 2) if len(parts) > 1 else parts[0]
        explained = None
        if self.driven:
            explained = (rest.pop(0) - self.mean) / self.deviation @ self.effects
            values = values - explained[:, :inputs]
        out = self.inner(values, seasons[:, :inputs], seasons[:, inputs:])
        if explained is not None:
            out = out + explained[:, inputs:]
        decoded, first = [], 0
        for code in self.codes:
            decoded.append(_decode(code, out[..., first : first + code.cells]))
            first += code.cells
        return decoded[0] if count == 1 else tuple(decoded)


def _encode(code: VariableCode, values: Tensor) -> Tensor:
    """Return coded values like `VariableCode.encode`, but without its check of the bounds."""
    if code.transform != "none":
        values = getattr(torch, code.transform)(values - (code.low or 0.0))
    return values if (code.center, code.scale) == (0, 1) else (values - code.center) / code.scale


def _decode(code: VariableCode, coded: Tensor) -> Tensor:
    """Return values in the variable's unit; see `VariableCode.decode`."""
    plain = (code.center, code.scale) == (0, 1)
    values = coded if plain else coded * code.scale + code.center
    if code.transform != "none":
        inverse = torch.square if code.transform == "sqrt" else torch.expm1
        values = inverse(values.clamp(min=0.0)) + (code.low or 0.0)
    if code.low is None and code.maximum is None:
        return values
    return values.clamp(code.low, code.maximum)


def arrays_of(
    config: ForecastingConfig, record: Mapping[str, Any], surrogate: ForecastSurrogate
) -> tuple[list[ArraySpec], list[ArraySpec], list[np.ndarray]]:
    """Return inputs, outputs, and two typical samples of each input of `PhysicalForecast`.

    Ranges are the extremes of each cell and of each driver over the training steps. Without the
    data, variables have the bounds of the configuration, if any. The ranges of parameters are
    stored in the surrogate.

    Args:
        config: of the run.
        record: of the fit, for the training steps.
        surrogate: the surrogate.
    """
    setting, coding = surrogate.setting, surrogate.coding
    steps = setting.inputs + setting.leads
    values, drivers, from_data = _values(config, record, surrogate)
    season = np.linspace(0.1, 0.9, steps, dtype=np.float32)
    inputs, typical = [], []
    for code, cells in zip(coding.fields, coding.slices, strict=False):
        part = values[:, cells]
        spec = ArraySpec(
            code.name or "field",
            ("step", "cell"),
            (setting.inputs, code.cells),
            code.units,
            code.low,
            code.maximum,
        )
        inputs.append(replace(spec, low=part.min(0), high=part.max(0)) if from_data else spec)
        typical.append(np.stack([part[: setting.inputs], part[-setting.inputs :]]))
    inputs.append(ArraySpec("season", ("step",), (steps,), "years", 0.0, 1.0))
    typical.append(np.stack([season, season[::-1]]))
    ranges = [code.seen for code in coding.variables if code.seen is not None]
    if ranges:
        low, high = np.array(ranges, np.float64).T
        names = ", ".join(code.name for code in coding.variables if code.seen is not None)
        inputs.append(ArraySpec("parameters", ("parameter",), (len(ranges),), names, low, high))
        typical.append(np.stack([low, high]))
    if coding.drivers:
        names = ", ".join(name for name, *_ in coding.drivers)
        spec = ArraySpec("drivers", ("step", "driver"), (steps, len(coding.drivers)), names)
        if drivers is None:
            mean = np.array([[d[1] for d in coding.drivers]])
            drivers = np.repeat(mean, 2 * steps, 0)
        else:
            spec = replace(spec, low=drivers.min(0), high=drivers.max(0))
        inputs.append(spec)
        typical.append(np.stack([drivers[:steps], drivers[-steps:]]))
    outputs = [
        ArraySpec(s.name, ("lead", "cell"), (setting.leads, s.shape[1]), s.units)
        for s in inputs[: len(coding.fields)]
    ]
    return inputs, outputs, typical


def _values(
    config: ForecastingConfig, record: Mapping[str, Any], surrogate: ForecastSurrogate
) -> tuple[np.ndarray, np.ndarray | None, bool]:
    """Return values (time, cell) and drivers (time, driver) of the training steps, and True.

    Without the data: 2 `inputs` states near the mean, no drivers, and False.
    """
    try:
        steps = record["steps"]
        part = slice(steps["train"][0], steps["validation"][1])
        data, _ = read_variables(config.data, surrogate.grid)
        coding = surrogate.coding
        drivers = regressors(config.data, coding, data.times) if coding.drivers else None
    except (DataError, KeyError) as error:
        log.warning("the range of the training inputs is unknown: %s", error)
        near = np.linspace(0, 1, 2 * surrogate.setting.inputs)[:, None]
        states = surrogate.coding.decode(surrogate.climatology.coefficients_[:1] + near)
        return states, None, False
    return data.series.values[part], None if drivers is None else drivers[part], True

"""Forecasters as torch modules for `deploy`, from coded inputs and seasons to all leads.

Times are passed as seasons, the elapsed fraction of the year: float32 resolves a season to a
few seconds, but a decimal year only to about an hour.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import TracedFunction
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.forecasters.autoregression import Average
from scitoolkit.forecasting.forecasters.base import Forecaster
from scitoolkit.forecasting.forecasters.climatology import AnomalyPersistence, Climatology
from scitoolkit.forecasting.forecasters.damped_anomaly import DampedAnomaly
from scitoolkit.forecasting.forecasters.lstm import LstmCorrection
from scitoolkit.forecasting.forecasters.persistence import Persistence
from scitoolkit.forecasting.surrogate import ForecastSurrogate
from scitoolkit.forecasting.traced_fields import PhysicalForecast, arrays_of


def traced(
    config: ForecastingConfig, surrogate: ForecastSurrogate, record: Mapping[str, Any]
) -> Sequence[TracedFunction]:
    """Return a forecast as a traceable function.

    Args:
        config: of the run.
        surrogate: the forecast.
        record: of the fit.

    Raises:
        ConfigError: the forecaster cannot be exported.
    """
    inputs, outputs, typical = arrays_of(config, record, surrogate)
    function = PhysicalForecast(module(surrogate.forecaster), surrogate)
    return [TracedFunction(function, inputs, outputs, typical)]


@functools.singledispatch
def module(forecaster: Forecaster) -> nn.Module:
    """Return a forecaster as a torch module.

    The module's inputs are values (B, inputs, cell), input seasons (B, inputs) and output seasons
    (B, lead); it returns (B, lead, cell).

    Raises:
        ConfigError: the forecaster cannot be exported.
    """
    raise ConfigError(
        f"the forecaster {type(forecaster).__name__}",
        where="export to C",
        allowed=", ".join(c.__name__ for c in module.registry if c is not object),
    )


class _Climatology(nn.Module):
    coefficients: Tensor
    orders: Tensor

    def __init__(self, source: Climatology) -> None:
        super().__init__()
        if source.trend:
            raise ConfigError(
                "a climatology with a trend",
                where="export to C",
                allowed="a climatology without a trend",
            )
        self.register_buffer("coefficients", _float(source.coefficients_))
        self.register_buffer("orders", 2 * math.pi * torch.arange(1, source.used_ + 1))

    def at(self, seasons: Tensor) -> Tensor:
        """Return the climatology (B, step, cell) for seasons (B, step)."""
        if not len(self.orders):
            return self.coefficients[0].expand(*seasons.shape, -1)
        angle = seasons[..., None] * self.orders
        both = torch.stack([torch.cos(angle), torch.sin(angle)], -1).flatten(-2)
        return both @ self.coefficients[1:] + self.coefficients[0]

    def forward(self, values: Tensor, before: Tensor, after: Tensor) -> Tensor:
        return self.at(after)


class _Damped(nn.Module):
    climatology: _Climatology
    factors: Tensor

    def __init__(
        self, source: DampedAnomaly | AnomalyPersistence, factors: np.ndarray, memory: Sequence[int]
    ) -> None:
        super().__init__()
        self.climatology = _Climatology(source.climatology)
        self.memory: tuple[int, ...] = tuple(memory)
        self.register_buffer("factors", _float(factors))

    def forward(self, values: Tensor, before: Tensor, after: Tensor) -> Tensor:
        anomalies = values - self.climatology.at(before)
        features = [anomalies[:, -1], *(anomalies[:, -k:].mean(1) for k in self.memory)]
        out = self.climatology.at(after)
        for feature, factor in zip(features, self.factors, strict=True):
            out = out + feature[:, None] * factor
        return out


class _Mean(nn.Module):
    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members: nn.ModuleList = nn.ModuleList(members)

    def forward(self, values: Tensor, before: Tensor, after: Tensor) -> Tensor:
        total = self.members[0](values, before, after)
        for member in self.members[1:]:
            total = total + member(values, before, after)
        return total / len(self.members)


class _Persistence(nn.Module):
    def forward(self, values: Tensor, before: Tensor, after: Tensor) -> Tensor:
        return values[:, -1:].expand(-1, after.shape[1], -1)


class _Corrected(nn.Module):
    """Base forecast plus the mean correction by LSTMs on mode coefficients."""

    climatology: _Climatology
    to_modes: Tensor
    from_modes: Tensor

    def __init__(self, source: LstmCorrection) -> None:
        super().__init__()
        self.base: nn.Module = module(source.base)
        self.climatology = _Climatology(source.climatology)
        self.networks: nn.Module = source.networks_.eval()
        self.seasonal: bool = source.seasonal_
        weights = source.setting.weights
        self.register_buffer("to_modes", _float((weights * source.modes_).T / source.input_scale_))
        self.register_buffer("from_modes", _float(source.target_scale_[:, None] * source.modes_))
        self.register_buffer("factors", _float(source.factors_[:, None]))

    def forward(self, values: Tensor, before: Tensor, after: Tensor) -> Tensor:
        x = (values - self.climatology.at(before)) @ self.to_modes
        if self.seasonal:
            angle = 2 * math.pi * before[..., None]
            x = torch.cat([x, torch.cos(angle), torch.sin(angle)], 2)
        correction = self.networks(x).mean(0) @ self.from_modes
        return self.base(values, before, after) + self.get_buffer("factors") * correction


@module.register
def _(forecaster: Climatology) -> nn.Module:
    return _Climatology(forecaster)


@module.register
def _(forecaster: Persistence) -> nn.Module:
    return _Persistence()


@module.register
def _(forecaster: AnomalyPersistence) -> nn.Module:
    return _Damped(forecaster, np.ones((1, 1, 1)), ())


@module.register
def _(forecaster: DampedAnomaly) -> nn.Module:
    own = np.einsum("lfp,pc->flc", forecaster.loadings_, forecaster.patterns_)
    return _Damped(forecaster, forecaster.common_.T[..., None] + own, forecaster.memory)


@module.register
def _(forecaster: Average) -> nn.Module:
    return _Mean([module(member) for member in forecaster.members])


@module.register
def _(forecaster: LstmCorrection) -> nn.Module:
    return _Corrected(forecaster)


def _float(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).float()

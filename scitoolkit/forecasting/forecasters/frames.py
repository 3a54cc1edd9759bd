"""Coordinate frames of forecasters: POD modes, or standardised grid points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    Memo,
    Setting,
    Subspace,
    once,
    prefixed,
    within,
)
from scitoolkit.forecasting.forecasters.climatology import Climatology
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows


class Frame(ABC):
    """Standardised coordinates of a field, with conversion from and to cells.

    Attributes:
        key: identifies equal frames in a cache.
        held: number of trailing coordinates that stay constant, for simulation parameters.
    """

    key: tuple[Any, ...] = ()
    held: int = 0

    @abstractmethod
    def fit(self, segments: Sequence[TimeSeries]) -> Frame:
        """Fit the coordinates to stretches of the record; return self."""

    @abstractmethod
    def encode(self, values: Array, years: Array) -> Array:
        """Return coordinates (..., coordinate) of values (..., cell) at decimal years (...)."""

    @abstractmethod
    def decode(self, coordinates: Array, years: Array, rest: Array | None = None) -> Array:
        """Return values (..., cell); `rest` (..., cell) is the forecast outside the frame."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the fitted state as plain arrays."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, np.ndarray]) -> Frame:
        """Restore the fitted state from `arrays`; return self."""


class Modes(Frame):
    """Standardised coefficients of the leading POD modes of the anomalies.

    Args:
        setting: rank, harmonics and area weights.
        seasonal: whether coefficients are those of anomalies from the climatology; otherwise they
            are those of deviations from the mean, which contain the season.

    Attributes:
        modes_: (mode, cell), orthonormal under the area weights.
        scale_: (mode,) standard deviations of the coefficients.
    """

    modes_: Array
    scale_: Array

    def __init__(self, setting: Setting, *, seasonal: bool = True) -> None:
        self.rank: int = setting.modes
        self.weights: Array = setting.weights
        self.parameters: tuple[int, ...] = setting.parameters
        self.held: int = len(setting.parameters)
        self.seasonal: bool = seasonal
        self.climatology: Climatology = Climatology(setting.harmonics)
        self.mean: Climatology = self.climatology if seasonal else Climatology(0)
        self.key: tuple[Any, ...] = ("modes", self.rank, setting.harmonics, seasonal)

    def fit(self, segments: Sequence[TimeSeries]) -> Modes:
        """Fit climatology, modes and scales."""
        self.climatology.fit(segments)
        self.mean.fit(segments)
        values = np.concatenate([self.climatology.anomalies(s).values for s in segments])
        self.modes_ = modes_of(values, self.weights, self.rank, self.parameters)
        coefficients = [self.project(self.mean.anomalies(s).values) for s in segments]
        spread = np.concatenate(coefficients).std(axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        return self

    def project(self, anomalies: Array) -> Array:
        """Return coefficients (..., mode) of anomalies (..., cell), in the field's unit."""
        return (anomalies * self.weights) @ self.modes_.T

    def encode(self, values: Array, years: Array) -> Array:
        """Return standardised coefficients (..., mode)."""
        return self.project(values - self.mean.at(years)) / self.scale_

    def decode(self, coordinates: Array, years: Array, rest: Array | None = None) -> Array:
        """Return values (..., cell); outside the modes they are `rest` or the climatology."""
        outside = self.climatology.at(years) if rest is None else rest
        missing = coordinates * self.scale_
        if rest is not None or not self.seasonal:
            missing = missing - self.project(outside - self.mean.at(years))
        return outside + missing @ self.modes_

    def split(self, truth: Array, years: Array) -> tuple[Array, Array]:
        """Return coefficients of (window, lead, cell), and mean squares (lead,) outside the modes.

        The mean squares are those of anomalies, because the climatology is forecast there.
        """
        away = truth - self.climatology.at(years)
        inside = self.project(away)
        share = self.weights / self.weights.sum()
        outside = (away**2).mean(axis=0) @ share
        outside = outside - (inside**2).mean(axis=0).sum(axis=-1) / self.weights.sum()
        if not self.seasonal:
            inside = self.project(truth - self.mean.at(years))
        return inside / self.scale_, np.maximum(outside, 0.0)

    def square(self, difference: Array) -> Array:
        """Return area-weighted mean squares (lead,) of differences (window, lead, mode)."""
        return ((difference * self.scale_) ** 2).mean(axis=0).sum(axis=-1) / self.weights.sum()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return climatology, mean, modes and scales."""
        parts = prefixed("climatology", self.climatology.arrays())
        if not self.seasonal:
            parts |= prefixed("mean", self.mean.arrays())
        return {**parts, "modes": self.modes_, "scale": self.scale_}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Modes:
        """Restore the fitted state from `arrays`; return self."""
        self.climatology.restore(within("climatology", arrays))
        if not self.seasonal:
            self.mean.restore(within("mean", arrays))
        self.modes_, self.scale_ = arrays["modes"], arrays["scale"]
        return self


def modes_of(anomalies: Array, weights: Array, rank: int, parameters: Sequence[int]) -> Array:
    """Return modes (mode, cell): the leading POD modes of the fields, then one per parameter.

    The mode of a parameter is constant on its cells and 0 elsewhere, so that its coefficient is
    proportional to the parameter.

    Args:
        anomalies: (time, cell), with the cells of parameters last.
        weights: (cell,) area weights.
        rank: total number of modes.
        parameters: number of cells of each parameter.
    """
    if not parameters:
        return leading_modes(anomalies, weights, rank)
    cells = len(weights) - sum(parameters)
    modes = np.zeros((rank, len(weights)))
    fields = leading_modes(anomalies[:, :cells], weights[:cells], rank - len(parameters))
    modes[: len(fields), :cells] = fields
    first = cells
    for mode, count in zip(modes[rank - len(parameters) :], parameters, strict=True):
        own = slice(first, first + count)
        mode[own] = 1 / np.sqrt(weights[own].sum())
        first += count
    return modes


def leading_modes(anomalies: Array, weights: Array, rank: int) -> Array:
    """Return POD modes (mode, cell), orthonormal under `weights`.

    Args:
        anomalies: (time, cell).
        weights: (cell,) area weights.
        rank: number of modes; if it is not below the number of equally weighted cells, the modes
            are the cells.

    Source:
        method of snapshots, Sirovich 1987, doi:10.1090/qam/910462.
    """
    cells = anomalies.shape[1]
    if rank >= cells and np.ptp(weights) < 1e-12:
        return np.eye(cells) / np.sqrt(weights[0])
    if len(anomalies) <= cells:
        times = np.linalg.eigh((anomalies * weights) @ anomalies.T)[1]
        modes = times[:, ::-1][:, :rank].T @ anomalies
    else:
        root = np.sqrt(weights)
        patterns = np.linalg.eigh((anomalies.T @ anomalies) * root[:, None] * root)[1]
        modes = patterns[:, ::-1][:, :rank].T / np.maximum(root, 1e-12)
    norm = np.sqrt((modes**2 * weights).sum(axis=1, keepdims=True))
    return modes / np.where(norm > 0, norm, 1.0)


class GridPoints(Frame):
    """Values at the grid points, standardised by a common mean and deviation.

    The common scale preserves differences between neighbours.
    """

    mean_: float
    scale_: float

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ("points",)

    def fit(self, segments: Sequence[TimeSeries]) -> GridPoints:
        """Fit mean and deviation over all points."""
        values = np.concatenate([s.values for s in segments])
        self.mean_, spread = float(values.mean()), float(values.std())
        self.scale_ = spread if spread > 0 else 1.0
        return self

    def encode(self, values: Array, years: Array) -> Array:
        """Return standardised values."""
        return (values - self.mean_) / self.scale_

    def decode(self, coordinates: Array, years: Array, rest: Array | None = None) -> Array:
        """Return values in the field's unit."""
        return coordinates * self.scale_ + self.mean_

    def arrays(self) -> dict[str, np.ndarray]:
        """Return mean and deviation."""
        return {"mean": np.array(self.mean_), "scale": np.array(self.scale_)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> GridPoints:
        """Restore the fitted state from `arrays`; return self."""
        self.mean_, self.scale_ = float(arrays["mean"]), float(arrays["scale"])
        return self


class InFrame(Forecaster):
    """Direct forecaster of all leads in the coordinates of a frame.

    Args:
        frame: coordinates.
        inner: forecaster of the coordinates.
        rest: forecaster of the field outside the frame; None for the climatology.
    """

    def __init__(self, frame: Frame, inner: Forecaster, rest: Forecaster | None = None) -> None:
        self.frame, self.inner, self.rest = frame, inner, rest

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> InFrame:
        """Fit the frame and both forecasters."""
        self.frame = fitted_frame(self.frame, segments, memo)
        self.inner.fit([TimeSeries(self.frame.encode(*s), s.years) for s in segments])
        if self.rest is not None:
            self.rest.fit(segments, memo)
        return self

    def subspace(self) -> Subspace | None:
        """Return the modes if the forecast outside them is the climatology."""
        return self.frame if self.rest is None and isinstance(self.frame, Modes) else None

    def coordinates(self, encoded: Windows) -> Array:
        """Return the forecast (window, lead, coordinate) for encoded windows."""
        return self.inner.predict(encoded)

    def predict(self, windows: Windows) -> Array:
        """Return the forecast, (window, lead, cell)."""
        rest = None if self.rest is None else self.rest.predict(windows)
        coordinates = self.inner.predict(encoded_windows(self.frame, windows))
        return self.frame.decode(coordinates, windows.output_years(), rest)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of all components."""
        rest = {} if self.rest is None else prefixed("rest", self.rest.arrays())
        return {
            **prefixed("frame", self.frame.arrays()),
            **prefixed("inner", self.inner.arrays()),
            **rest,
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> InFrame:
        """Restore the fitted state from `arrays`; return self."""
        self.frame.restore(within("frame", arrays))
        self.inner.restore(within("inner", arrays))
        if self.rest is not None:
            self.rest.restore(within("rest", arrays))
        return self


def fitted_frame(frame: Frame, segments: Sequence[TimeSeries], memo: Memo | None) -> Frame:
    """Return the fitted frame, shared through `memo` by candidates with the same segments."""
    return once(memo, ("frame", *frame.key), lambda: frame.fit(segments))


def encoded_windows(frame: Frame | Subspace, windows: Windows) -> Windows:
    """Return windows in the coordinates of a frame; only steps up to the last input are encoded."""
    steps = windows.starts[:, None] + np.arange(windows.inputs)
    values = windows.series.values
    first = min(len(values), int(steps.max()) + 1) if len(steps) else 0
    encoded = frame.encode(values[:first], windows.series.years[:first])
    used = np.full((len(values), encoded.shape[1]), np.nan)
    used[:first] = encoded
    return windows.with_values(used)


def unbroken(segments: Sequence[TimeSeries], shortest: int) -> list[TimeSeries]:
    """Return the stretches of at least `shortest` steps.

    Raises:
        DataError: all stretches are shorter.
    """
    long = [s for s in segments if len(s.values) >= shortest]
    if not long:
        raise DataError(
            f"no stretch without gaps has {shortest} steps", fix="a longer file, or fewer steps"
        )
    return long

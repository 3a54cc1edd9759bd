"""Coordinates in which forecasters work: POD modes, or the points of the grid themselves."""

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
from scitoolkit.forecasting.windows import Array, Series, Windows


class Frame(ABC):
    """Coordinates of a field, standardised: `encode` and `decode` between cells and them.

    Attributes:
        held: number of coordinates, the last ones, that no forecast changes: parameters.
    """

    key: tuple[Any, ...] = ()
    held: int = 0

    @abstractmethod
    def fit(self, segments: Sequence[Series]) -> Frame:
        """Learn the coordinates from stretches of the record."""

    @abstractmethod
    def encode(self, values: Array, years: Array) -> Array:
        """Return (..., coordinate) of (..., cell) at (...) decimal years."""

    @abstractmethod
    def decode(self, coordinates: Array, years: Array, rest: Array | None = None) -> Array:
        """Return (..., cell); `rest` (..., cell) is the forecast of what has no coordinate."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return what was fitted."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, np.ndarray]) -> Frame:
        """Set what `arrays` returned."""


class Modes(Frame):
    """Coefficients of the leading POD modes of the anomalies, each divided by its deviation.

    Args:
        setting: rank, harmonics and area weights.
        seasonal: whether coefficients are those of anomalies from the climatology; else those of
            deviations from the mean, which keep their season.

    Attributes:
        modes_: (mode, cell), orthonormal under the area weights.
    """

    modes_: Array
    scale_: Array

    def __init__(self, setting: Setting, *, seasonal: bool = True) -> None:
        self.rank: int = setting.modes
        self.weights: Array = setting.weights
        self.parameters: tuple[int, ...] = setting.parameters
        self.held = len(setting.parameters)
        self.seasonal: bool = seasonal
        self.climatology: Climatology = Climatology(setting.harmonics)
        self.mean: Climatology = self.climatology if seasonal else Climatology(0)
        self.key = ("modes", self.rank, setting.harmonics, seasonal)

    def fit(self, segments: Sequence[Series]) -> Modes:
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
        """Return (..., mode) coefficients, in the field's unit."""
        return (anomalies * self.weights) @ self.modes_.T

    def encode(self, values: Array, years: Array) -> Array:
        """Return (..., mode) standardised coefficients."""
        return self.project(values - self.mean.at(years)) / self.scale_

    def decode(self, coordinates: Array, years: Array, rest: Array | None = None) -> Array:
        """Return (..., cell): the modes' part, and outside the modes `rest` or the climatology."""
        outside = self.climatology.at(years) if rest is None else rest
        missing = coordinates * self.scale_
        if rest is not None or not self.seasonal:
            missing = missing - self.project(outside - self.mean.at(years))
        return outside + missing @ self.modes_

    def split(self, truth: Array, years: Array) -> tuple[Array, Array]:
        """Return coefficients of (window, lead, cell), and (lead,) mean squares outside the modes.

        The climatology is what is forecast outside the modes.
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
        """Return (lead,) area-weighted mean squares of (window, lead, mode) differences."""
        return ((difference * self.scale_) ** 2).mean(axis=0).sum(axis=-1) / self.weights.sum()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return climatology, mean, modes and scales."""
        parts = prefixed("climatology", self.climatology.arrays())
        if not self.seasonal:
            parts |= prefixed("mean", self.mean.arrays())
        return {**parts, "modes": self.modes_, "scale": self.scale_}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Modes:
        """Set what `arrays` returned."""
        self.climatology.restore(within("climatology", arrays))
        if not self.seasonal:
            self.mean.restore(within("mean", arrays))
        self.modes_, self.scale_ = arrays["modes"], arrays["scale"]
        return self


def modes_of(anomalies: Array, weights: Array, rank: int, parameters: Sequence[int]) -> Array:
    """Return (mode, cell) modes: leading ones of the fields, then one for each parameter.

    A parameter's mode is 1 on its cells and 0 elsewhere, so that its coordinate is its value.

    Args:
        anomalies: (time, cell), the cells of parameters last.
        weights: (cell,) area weights.
        rank: number of modes in all.
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
    """Return (mode, cell) POD modes, orthonormal under `weights`.

    Args:
        anomalies: (time, cell).
        weights: (cell,) area weights.
        rank: number of modes; all cells themselves where there are no more.

    Source:
        Method of snapshots, Sirovich 1987, doi:10.1090/qam/910462.
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


class Points(Frame):
    """The grid's points, all with one mean and one deviation: neighbours keep their relations."""

    mean_: float
    scale_: float

    def __init__(self) -> None:
        self.key = ("points",)

    def fit(self, segments: Sequence[Series]) -> Points:
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

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Points:
        """Set what `arrays` returned."""
        self.mean_, self.scale_ = float(arrays["mean"]), float(arrays["scale"])
        return self


class InFrame(Forecaster):
    """A forecaster of all leads at once, in the coordinates of a frame.

    Args:
        frame: the coordinates.
        inner: forecasts coordinates.
        rest: forecasts the field outside the frame; None for the climatology.
    """

    def __init__(self, frame: Frame, inner: Forecaster, rest: Forecaster | None = None) -> None:
        self.frame, self.inner, self.rest = frame, inner, rest

    def fit(self, segments: Sequence[Series], memo: Memo | None = None) -> InFrame:
        """Fit frame, coordinates and rest."""
        self.frame = fitted_frame(self.frame, segments, memo)
        self.inner.fit([Series(self.frame.encode(*s), s.years) for s in segments])
        if self.rest is not None:
            self.rest.fit(segments, memo)
        return self

    def subspace(self) -> Subspace | None:
        """Return the modes, where the climatology is forecast outside them."""
        return self.frame if self.rest is None and isinstance(self.frame, Modes) else None

    def coordinates(self, encoded: Windows) -> Array:
        """Return (window, lead, coordinate)."""
        return self.inner.predict(encoded)

    def predict(self, windows: Windows) -> Array:
        """Return (window, lead, cell)."""
        rest = None if self.rest is None else self.rest.predict(windows)
        coordinates = self.inner.predict(encoded_windows(self.frame, windows))
        return self.frame.decode(coordinates, windows.output_years(), rest)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of all parts."""
        rest = {} if self.rest is None else prefixed("rest", self.rest.arrays())
        return {
            **prefixed("frame", self.frame.arrays()), **prefixed("inner", self.inner.arrays()),
            **rest,
        }  # fmt: skip

    def restore(self, arrays: Mapping[str, np.ndarray]) -> InFrame:
        """Set what `arrays` returned."""
        self.frame.restore(within("frame", arrays))
        self.inner.restore(within("inner", arrays))
        if self.rest is not None:
            self.rest.restore(within("rest", arrays))
        return self


def fitted_frame(frame: Frame, segments: Sequence[Series], memo: Memo | None) -> Frame:
    """Return the frame, fitted; candidates that are fitted to the same segments share one."""
    return once(memo, ("frame", *frame.key), lambda: frame.fit(segments))


def encoded_windows(frame: Frame | Subspace, windows: Windows) -> Windows:
    """Return windows of the coordinates; steps after the last input are not read."""
    steps = windows.starts[:, None] + np.arange(windows.inputs)
    values = windows.series.values
    first = min(len(values), int(steps.max()) + 1) if len(steps) else 0
    encoded = frame.encode(values[:first], windows.series.years[:first])
    used = np.full((len(values), encoded.shape[1]), np.nan)
    used[:first] = encoded
    return windows.with_values(used)


def unbroken(segments: Sequence[Series], shortest: int) -> list[Series]:
    """Return the stretches of at least `shortest` steps.

    Raises:
        DataError: there is none.
    """
    long = [s for s in segments if len(s.values) >= shortest]
    if not long:
        raise DataError(
            f"no unbroken stretch holds {shortest} steps", fix="a longer file, or fewer steps"
        )
    return long

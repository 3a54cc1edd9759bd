"""Forecast surrogate: a fitted forecaster with its grid, modes and error distribution."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from scitoolkit.core.errors import CheckpointError
from scitoolkit.core.files import replacing
from scitoolkit.forecasting.coding import Coding, VariableCode
from scitoolkit.forecasting.conformal import width_factors
from scitoolkit.forecasting.data import POINT, is_panel, to_grid
from scitoolkit.forecasting.fields import VARIABLE, CodedSnapshots, named_parts
from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    ForecasterConfig,
    Setting,
    prefixed,
    stored_config,
    within,
)
from scitoolkit.forecasting.forecasters.climatology import Climatology
from scitoolkit.forecasting.intervals import QUANTILES
from scitoolkit.forecasting.packing import pack, unpack
from scitoolkit.forecasting.windows import Array, Windows

WEIGHTS = "weights.safetensors"
FORMATS = (2, 3)
"""Readable file formats. Format 3 has coded values, which older releases would not decode."""


@dataclass
class ForecastSurrogate:
    """Self-contained forecast surrogate, without training data.

    Attributes:
        config: of the selected forecaster, with all settings chosen.
        setting: window, field and calendar of the forecaster.
        forecaster: the fitted forecaster.
        climatology: of every cell, the reference of anomalies in scores.
        modes: (mode, cell) patterns, orthonormal under the area weights, for scores and maps.
        spread: (cell,) scale of out-of-sample errors.
        quantiles: (lead, level) quantiles of error / spread at QUANTILES.
        grid: (*space) True at the cells of the field.
        coding: conversion between values of files and coded values.
        header: name, units, winner, last year and ranges of coded values of the training data.
    """

    config: ForecasterConfig
    setting: Setting
    forecaster: Forecaster
    climatology: Climatology
    modes: Array
    spread: Array
    quantiles: Array
    grid: xr.DataArray
    coding: Coding
    header: dict[str, Any] = field(default_factory=dict)

    @property
    def weights(self) -> Array:
        """Area weights (cell,) with mean 1."""
        return self.setting.weights

    def forecast(self, windows: Windows) -> Array:
        """Return the coded forecast (window, lead, cell) of coded windows; see `Physical`."""
        return self.forecaster.predict(windows)

    def project(self, values: Array) -> Array:
        """Return the mode coefficients (..., mode) of anomalies (..., cell)."""
        return (values * self.weights) @ self.modes.T

    def intervals(self, level: float = 0.9) -> tuple[Array, Array]:
        """Return lower and upper offsets (lead, cell) of the central interval with a coverage."""
        tail = (1 - level) / 2
        low, high = (
            np.array([np.interp(q, QUANTILES, row) for row in self.quantiles])
            for q in (tail, 1 - tail)
        )
        return low[:, None] * self.spread, high[:, None] * self.spread

    def factors(self, windows: Windows, level: float = 0.9) -> Array:
        """Return width factors (window, lead, cell) that adapt `intervals` to earlier errors.

        Args:
            windows: outside the training data, in ascending order; truths may be NaN.
            level: of the intervals.
        """
        low, high = self.intervals(level)
        error = windows.targets() - self.forecast(windows)
        return width_factors(error, low, high, self.weights, windows.starts, level=level)

    def save(self, folder: Path) -> Path:
        """Write weights.safetensors, arrays over cells of a field as 16-bit integers; return it.

        The rounding error is 1/65,000 of each row's range, far below any forecast error. `load`
        returns the rounded surrogate.
        """
        arrays: dict[str, np.ndarray] = {
            **prefixed("forecaster", self.forecaster.arrays()),
            **prefixed("climatology", self.climatology.arrays()),
            "modes": self.modes,
            "spread": self.spread[None],
            "quantiles": self.quantiles,
            "effects": self.coding.effects,
        }
        # Rounding to a share of the range of all cells would lose the small series of a panel.
        stored, shared = pack(arrays, 0 if is_panel(self.grid) else len(self.weights))
        stored["weights"] = self.weights.astype(np.float32)
        stored["grid"] = np.packbits(self.grid.values.ravel())
        header = {
            **self.header,
            "format": FORMATS[not self.coding.trivial or bool(self.coding.seasons)],
            "grid": _describe_grid(self.grid, stored),
            "forecaster": self.config.model_dump(mode="json"),
            "shared": shared,
            "coding": self.coding.header(),
            "setting": {
                key: getattr(self.setting, key)
                for key in (
                    "inputs",
                    "leads",
                    "rank",
                    "harmonics",
                    "shape",
                    "rows",
                    "seed",
                    "parameters",
                    "season",
                )
            },
        }
        path = Path(folder) / WEIGHTS
        contiguous = {k: np.asarray(v, order="C") for k, v in stored.items()}
        with replacing(path, SafetensorError) as temporary:
            save_file(contiguous, temporary, {"scitoolkit": json.dumps(header)})
        return path

    @classmethod
    def load(cls, folder: Path) -> ForecastSurrogate:
        """Return the surrogate from a folder written by `save`.

        Raises:
            CheckpointError: the file is missing, damaged or of an unsupported format.
        """
        path = Path(folder) / WEIGHTS
        try:
            stored, header = load_file(str(path)), _header(path)
        except FileNotFoundError:
            raise CheckpointError("no weights", where=str(path), fix="train first") from None
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise CheckpointError(f"cannot be read ({error})", where=str(path)) from None
        if header.get("format") not in FORMATS:
            raise CheckpointError(
                "was written by a release with other forecasters",
                where=str(path),
                allowed=f"formats {FORMATS}, got {header.get('format', 1)}",
                fix="train again",
            )
        try:
            return cls._assemble(stored, header)
        except (KeyError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"cannot be read ({error})", where=str(path)) from None

    @classmethod
    def _assemble(cls, stored: dict[str, np.ndarray], header: dict[str, Any]) -> ForecastSurrogate:
        shape = header["setting"]["shape"]
        setting = Setting(
            **{
                **header["setting"],
                "shape": None if shape is None else tuple(shape),
                "parameters": tuple(header["setting"].get("parameters", ())),
            },
            weights=stored["weights"].astype(np.float64),
        )
        arrays = unpack(stored, header["shared"])
        config = stored_config(header["forecaster"])
        climatology = Climatology(setting.harmonics).restore(within("climatology", arrays))
        return cls(
            config,
            setting,
            config.build(setting).restore(within("forecaster", arrays)),
            climatology,
            arrays["modes"],
            arrays["spread"][0],
            arrays["quantiles"],
            _rebuild_grid(header["grid"], stored),
            _coding_of(header, arrays, len(setting.weights)),
            header,
        )


def _coding_of(header: dict[str, Any], arrays: dict[str, np.ndarray], cells: int) -> Coding:
    if "coding" in header:
        return Coding.from_header(header["coding"], arrays["effects"])
    plain = VariableCode(header.get("name", ""), header.get("units", ""), cells)
    return Coding((plain,), np.zeros((0, cells)))


def _describe_grid(grid: xr.DataArray, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    described = {}
    for name, coordinate in grid.coords.items():
        values = coordinate.values
        attrs = {"dims": list(coordinate.dims), "attrs": _texts(coordinate)}
        if values.dtype.kind in "fiu":
            arrays[f"coord.{name}"] = values
            described[str(name)] = attrs
        elif values.ndim == 1:  # names of series, stations, ...
            described[str(name)] = {**attrs, "labels": [str(label) for label in values]}
    return {"dims": list(grid.dims), "shape": list(grid.shape), "coords": described}


def _texts(coordinate: xr.DataArray) -> dict[str, str]:
    return {str(k): v for k, v in coordinate.attrs.items() if isinstance(v, str)}


def _rebuild_grid(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> xr.DataArray:
    shape = tuple(header["shape"])
    mask = np.unpackbits(arrays["grid"], count=int(np.prod(shape))).astype(bool)
    coords = {}
    for name, entry in header["coords"].items():
        values = entry["labels"] if "labels" in entry else arrays[f"coord.{name}"]
        coords[name] = xr.Variable(tuple(entry["dims"]), values, entry["attrs"])
    return xr.DataArray(mask.reshape(shape), dims=header["dims"], coords=coords)


def _header(path: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(str(path), framework="np") as file:
        return json.loads((file.metadata() or {})["scitoolkit"])


def forecast_dataset(
    surrogate: ForecastSurrogate,
    field: CodedSnapshots,
    windows: Windows,
    valid: np.ndarray,
    factors: Array | float = 1.0,
) -> xr.Dataset:
    """Return the forecast of one window with its 90 % interval as a dataset.

    Args:
        surrogate: the surrogate.
        field: field of the window.
        windows: exactly one window.
        valid: (lead,) forecast times.
        factors: (lead, cell) width factors of the intervals.

    Returns:
        For every variable `u` the forecast `u` and the bounds `u_low`, `u_high`, with dims
        (lead, *space), in the unit of the file.
    """
    centre = surrogate.forecast(windows)
    low, high = (factors * bound for bound in surrogate.intervals())
    bounds = [field.physical(centre + bound, windows)[0] for bound in (low, high)]
    widths = np.median(bounds[1] - bounds[0], axis=0)
    out = {}
    for suffix, coded, text in (
        ("", centre, "forecast"),
        ("_low", centre + low, "lower bound of the 90 % interval"),
        ("_high", centre + high, "upper bound of the 90 % interval"),
    ):
        values = field.physical(coded, windows)[0]
        array = to_grid(surrogate.grid, values, ("lead",), differences=widths)
        for number, (name, unit, _) in enumerate(named_parts(surrogate.coding)):
            own = array.isel({VARIABLE: number}, drop=True) if VARIABLE in array.dims else array
            attrs = {"units": unit} if unit else {}
            out[name + suffix] = own.assign_attrs(attrs, long_name=f"{name}: {text}")
    leads = np.arange(1, len(valid) + 1)
    dataset = xr.Dataset(out)
    return (
        dataset.isel({POINT: 0}, drop=True) if POINT in dataset.dims else dataset
    ).assign_coords(
        lead=("lead", leads, {"long_name": "steps after the last input", "axis": "T"}),
        valid_time=("lead", valid, {"long_name": "forecast time"}),
    )

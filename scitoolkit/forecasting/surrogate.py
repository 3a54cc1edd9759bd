"""The field surrogate: a closed-form forecast of every cell, corrected by POD-LSTMs.

Five modes of sea-surface temperature leave out as much as a good forecast errs, so a forecast
that lives in a subspace cannot win. Here all cells have their climatology and damped anomaly,
and the network forecasts only what is left, in the leading modes. Its correction is multiplied
by one factor per lead, estimated on validation: 0 where it has shown no skill.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from scitoolkit.core.errors import CheckpointError
from scitoolkit.core.run_directory import disk_error
from scitoolkit.forecasting.baselines import DampedAnomaly, RidgeAutoregression, last_anomaly
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import FieldData, to_grid
from scitoolkit.forecasting.lstm import Ensemble, PodLSTM
from scitoolkit.forecasting.windows import Array, Windows

WEIGHTS = "weights.safetensors"
QUANTILES = (0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975)
"""Levels at which the distribution of forecast errors is kept; 0.05 and 0.95 bound 90 %."""

_VARYING = ("climatology", "patterns", "modes", "spread")


@dataclass
class ForecastSurrogate:
    """All that is needed to forecast, and nothing of the training data.

    Attributes:
        base: climatology and damped anomaly of every cell.
        modes: (mode, cell) patterns, orthonormal under `weights`.
        weights: (cell,) area weights of mean 1.
        input_scale, target_scale: (mode,) standard deviations, in the field's unit.
        network: the ensemble.
        ridge: autoregression of the modes' anomalies, the linear rival of the network.
        factors: (lead,) share of the correction that is applied.
        spread: (cell,) RMS error on validation.
        quantiles: (lead, level) of error / spread at QUANTILES.
        grid: (*space) True at the cells.
        header: name, units, `correction` ("network" or "ridge"), last year learned from.
    """

    base: DampedAnomaly
    modes: Array
    weights: Array
    input_scale: Array
    target_scale: Array
    network: Ensemble
    factors: Array
    spread: Array
    quantiles: Array
    grid: xr.DataArray
    header: dict[str, Any] = field(default_factory=dict)
    ridge: RidgeAutoregression | None = None

    def forecast(self, windows: Windows) -> Array:
        """Return (window, lead, cell) in the field's unit."""
        out = self.base.predict(windows)
        if self.factors.any():
            out += self.factors[:, None] * self.correction(windows)
        return out

    def correction(self, windows: Windows) -> Array:
        """Return (window, lead, cell): what is added to the base, before `factors`."""
        if self.header.get("correction") == "ridge":
            return self.ridge_correction(windows)
        return self.network_correction(windows)

    def ridge_correction(self, windows: Windows) -> Array:
        """Return (window, lead, cell): the base's part in the modes replaced by the ridge's."""
        assert self.ridge is not None
        base = self.base.predict(windows) - self.base.climatology.predict(windows)
        forecast = self.ridge.forecast(self.coefficients(windows))[:, : windows.leads]
        return (forecast - self.project(base)) @ self.modes

    def network_correction(self, windows: Windows) -> Array:
        """Return (window, lead, cell): the mean of the networks."""
        with torch.no_grad():
            members = self.network.eval()(torch.from_numpy(self.inputs(windows)))
        coefficients = members.mean(dim=0).double().numpy() * self.target_scale
        return coefficients @ self.modes

    def coefficients(self, windows: Windows) -> Array:
        """Return (window, inputs, mode): anomalies of the inputs, in the modes."""
        lags = reversed(range(windows.inputs))
        anomalies = [last_anomaly(self.base.climatology, windows, lag) for lag in lags]
        return np.stack([self.project(a) for a in anomalies], axis=1)

    def inputs(self, windows: Windows) -> np.ndarray:
        """Return (window, inputs, feature) float32: standardised anomaly coefficients, season."""
        x = self.coefficients(windows) / self.input_scale
        if self.header["seasonal_inputs"]:
            angle = 2 * np.pi * windows.input_years()[..., None]
            x = np.concatenate([x, np.cos(angle), np.sin(angle)], axis=2)
        return x.astype(np.float32)

    def targets(self, windows: Windows) -> np.ndarray:
        """Return (window, lead, mode) float32: standardised coefficients of the base's error."""
        error = windows.targets() - self.base.predict(windows)
        return (self.project(error) / self.target_scale).astype(np.float32)

    def project(self, values: Array) -> Array:
        """Return (..., mode) coefficients of (..., cell) anomalies."""
        return (values * self.weights) @ self.modes.T

    def intervals(self, level: float = 0.9) -> tuple[Array, Array]:
        """Return (lead, cell) low and high offsets of the central interval of `level`."""
        tail = (1 - level) / 2
        low, high = (
            np.array([np.interp(q, QUANTILES, row) for row in self.quantiles])
            for q in (tail, 1 - tail)
        )
        return low[:, None] * self.spread, high[:, None] * self.spread

    def save(self, folder: Path) -> Path:
        """Write weights.safetensors; what varies by cell is kept as 16-bit integers.

        The rounding is 1/65,000 of each row's range, far below any forecast error; it halves the
        file. Use `load` to get what others will get.
        """
        arrays = {
            "climatology": self.base.climatology.coefficients_, "patterns": self.base.patterns_,
            "modes": self.modes, "spread": self.spread[None],
            "common": self.base.common_, "loadings": self.base.loadings_,
            "weights": self.weights.astype(np.float32), "input_scale": self.input_scale,
            "target_scale": self.target_scale, "factors": self.factors,
            "quantiles": self.quantiles, "grid": np.packbits(self.grid.values.ravel()),
        }  # fmt: skip
        for name in _VARYING:
            arrays[name], arrays[f"{name}.scale"] = _to_int16(arrays[name])
        if self.ridge is not None:
            parts = {"mean": self.ridge.mean_, "scale": self.ridge.scale_}
            parts["weights"] = self.ridge.weights_
            arrays |= {f"ridge.{name}": values for name, values in parts.items()}
        for name, tensor in self.network.state_dict().items():
            arrays[f"network.{name}"] = tensor.cpu().numpy()
        header = {**self.header, "grid": _describe_grid(self.grid, arrays),
                  "climatology": {"harmonics": self.base.climatology.used_,
                                  "origin": self.base.climatology.origin_},
                  "memory": list(self.base.memory)}  # fmt: skip
        path = Path(folder) / WEIGHTS
        temporary = path.with_suffix(".tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            contiguous = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
            save_file(contiguous, str(temporary), {"scitoolkit": json.dumps(header)})
            temporary.chmod(0o644)
            temporary.replace(path)
        except (OSError, SafetensorError) as error:
            temporary.unlink(missing_ok=True)
            raise disk_error(error if isinstance(error, OSError) else OSError(str(error)), path) \
                from None  # fmt: skip
        return path

    @classmethod
    def load(cls, folder: Path, config: ForecastingConfig) -> ForecastSurrogate:
        """Read what `save` wrote.

        Raises:
            CheckpointError: the file is missing, damaged or of another configuration.
        """
        path = Path(folder) / WEIGHTS
        try:
            arrays = load_file(str(path))
            header = _header(path)
            return _assemble(cls, arrays, header, config)
        except FileNotFoundError:
            raise CheckpointError("no weights", where=str(path), fix="train first") from None
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"cannot be read ({error})", where=str(path)) from None


def _assemble(cls, arrays: dict[str, np.ndarray], header: dict, config) -> ForecastSurrogate:
    for name in _VARYING:
        arrays[name] = _from_int16(arrays[name], arrays[f"{name}.scale"])
    base = DampedAnomaly(header["climatology"]["harmonics"], config.leads, memory=header["memory"])
    base.climatology.used_ = header["climatology"]["harmonics"]
    base.climatology.origin_ = header["climatology"]["origin"]
    base.climatology.coefficients_ = arrays["climatology"]
    base.common_, base.loadings_ = arrays["common"], arrays["loadings"]
    base.patterns_ = arrays["patterns"]
    network = make_network(config, len(arrays["modes"]), header["seasonal_inputs"])
    prefix = "network."
    network.load_state_dict(
        {k.removeprefix(prefix): torch.from_numpy(v) for k, v in arrays.items()
         if k.startswith(prefix)}
    )  # fmt: skip
    ridge = None
    if "ridge.weights" in arrays:
        ridge = RidgeAutoregression(config.inputs, config.leads)
        ridge.mean_, ridge.scale_ = arrays["ridge.mean"], arrays["ridge.scale"]
        ridge.weights_ = arrays["ridge.weights"]
    return cls(
        base, arrays["modes"], arrays["weights"].astype(np.float64), arrays["input_scale"],
        arrays["target_scale"], network, arrays["factors"], arrays["spread"][0],
        arrays["quantiles"], _rebuild_grid(header["grid"], arrays), header, ridge,
    )  # fmt: skip


def make_network(config: ForecastingConfig, num_modes: int, seasonal: bool) -> Ensemble:
    """Return an ensemble of untrained networks, the same for a seed."""
    from scitoolkit.core.seeds import derive_seed

    members: list[torch.nn.Module] = []
    chain = config.model.architecture
    for member in range(config.ensemble):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(config.seed, member))
            members.append(
                PodLSTM(
                    num_modes + (2 if seasonal else 0), num_modes, inputs=config.inputs,
                    leads=config.leads, hidden=config.model.hidden, layers=config.model.layers,
                    head=config.model.head, nodes=chain.nodes if chain else None,
                    skips=chain.skips if chain else (),
                )
            )  # fmt: skip
    return Ensemble(members)


def _to_int16(values: Array) -> tuple[np.ndarray, Array]:
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    step = np.where(high > low, (high - low) / 65534, 1.0)
    return np.round((values - low) / step - 32767).astype(np.int16), np.stack([low, step])


def _from_int16(stored: np.ndarray, scale: Array) -> Array:
    low, step = scale
    return (stored.astype(np.float64) + 32767) * step + low


def _describe_grid(grid: xr.DataArray, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    described = {}
    for name, coordinate in grid.coords.items():
        values = coordinate.values
        if values.dtype.kind in "fiu":
            arrays[f"coord.{name}"] = values
            described[str(name)] = {"dims": list(coordinate.dims), "attrs": _texts(coordinate)}
    return {"dims": list(grid.dims), "shape": list(grid.shape), "coords": described}


def _texts(coordinate: xr.DataArray) -> dict[str, str]:
    return {str(k): v for k, v in coordinate.attrs.items() if isinstance(v, str)}


def _rebuild_grid(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> xr.DataArray:
    shape = tuple(header["shape"])
    mask = np.unpackbits(arrays["grid"], count=int(np.prod(shape))).astype(bool)
    coords = {
        name: xr.Variable(tuple(entry["dims"]), arrays[f"coord.{name}"], entry["attrs"])
        for name, entry in header["coords"].items()
    }
    return xr.DataArray(mask.reshape(shape), dims=header["dims"], coords=coords)


def _header(path: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(str(path), framework="np") as file:
        return json.loads((file.metadata() or {})["scitoolkit"])


def forecast_dataset(
    surrogate: ForecastSurrogate, data: FieldData, windows: Windows, valid: np.ndarray
) -> xr.Dataset:
    """Return the forecast of one window with its 90 % bounds, ready to be written.

    Args:
        surrogate: the surrogate.
        data: the field the window was taken from.
        windows: exactly one window.
        valid: (lead,) times that are forecast.
    """
    centre = surrogate.forecast(windows)[0]
    low, high = surrogate.intervals()
    attrs = {"units": data.units} if data.units else {}
    out = {}
    for suffix, values, text in (
        ("", centre, "forecast"),
        ("_low", centre + low, "lower bound of the 90 % interval"),
        ("_high", centre + high, "upper bound of the 90 % interval"),
    ):
        array = to_grid(surrogate.grid, values, ("lead",))
        out[data.name + suffix] = array.assign_attrs(attrs, long_name=f"{data.name}: {text}")
    leads = np.arange(1, len(valid) + 1)
    return xr.Dataset(out).assign_coords(
        lead=("lead", leads, {"long_name": "steps after the last input"}),
        valid_time=("lead", valid, {"long_name": "time that is forecast"}),
    )

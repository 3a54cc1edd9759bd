"""Serialisation of a fitted POD as a dictionary of plain arrays, without pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError


@dataclass(frozen=True)
class PODState:
    """Fitted state of a POD as plain data.

    Attributes:
        params: the constructor's arguments.
        scalars: fitted attributes that JSON can hold, by name.
        vectors: fitted attributes of shape (mode,), by name.
        mask: (*space) True at the cells used, with the grid's coordinates.
        modes: (mode, *space).
        weights: (*space) area weights.
        coefficients: (regressor, cell) of mean and seasonal cycle.
        dtype: of the training field.
    """

    params: dict[str, Any]
    scalars: dict[str, Any]
    vectors: dict[str, np.ndarray]
    mask: xr.DataArray
    modes: np.ndarray
    weights: np.ndarray
    coefficients: np.ndarray
    dtype: np.dtype

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays, with all other data as JSON bytes under "header"."""
        arrays = {f"coord.{name}": coord.values for name, coord in self.mask.coords.items()}
        texts = {k: v.astype(str).tolist() for k, v in arrays.items() if v.dtype.kind not in "fiub"}
        header = self.scalars | {
            "params": self.params,
            "dims": self.mask.dims,
            "dtype": str(self.dtype),
            "coords": {k: [v.dims, dict(v.attrs)] for k, v in self.mask.coords.items()},
            "texts": texts,
        }
        arrays = {k: v for k, v in arrays.items() if k not in texts}
        arrays["header"] = np.frombuffer(json.dumps(header, default=_plain).encode(), np.uint8)
        arrays |= {"modes_": self.modes, "mask_": self.mask.values, "weights_": self.weights}
        return arrays | self.vectors | {"coefficients": self.coefficients}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], scalars: tuple[str, ...], vectors: tuple[str, ...]
    ) -> PODState:
        """Return the state from the arrays of `to_arrays`.

        Args:
            arrays: of `to_arrays`.
            scalars: names of the fitted attributes in the header.
            vectors: names of the fitted arrays of shape (mode,).

        Raises:
            DataError: the arrays are not those of a POD.
        """
        try:
            header = json.loads(np.asarray(arrays["header"], np.uint8).tobytes())
            mask = xr.DataArray(
                np.array(arrays["mask_"], bool),
                dims=tuple(header["dims"]),
                coords=_coords(header, arrays),
                name="mask",
            )
            return cls(
                params=dict(header["params"]),
                scalars={name: header[name] for name in scalars},
                vectors={name: np.array(arrays[name]) for name in vectors},
                mask=mask,
                modes=np.array(arrays["modes_"]),
                weights=np.array(arrays["weights_"]),
                coefficients=np.array(arrays["coefficients"]),
                dtype=np.dtype(header["dtype"]),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise DataError(f"not the arrays of a POD ({error!r})", fix="POD.to_arrays()") from None


def _coords(header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, xr.Variable]:
    coords = {}
    for name, (dims, attrs) in header["coords"].items():
        key = f"coord.{name}"
        values = header["texts"][key] if key in header["texts"] else arrays[key]
        coords[name] = xr.Variable(tuple(dims), np.array(values), attrs)
    return coords


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return value.tolist() if isinstance(value, np.ndarray) else str(value)

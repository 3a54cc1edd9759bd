"""A fitted POD as a dictionary of plain arrays, and back: what a checkpoint can hold, no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError

if TYPE_CHECKING:
    from scitoolkit.forecasting.pod import POD

_VECTORS = ("singular_values_", "explained_variance_ratio_", "error_estimate_", "error_bound_")
_SCALARS = (
    "name_", "attrs_", "method_", "truncation_error_", "num_partly_missing_", "num_passes_",
    "time_dim_", "_uses_constant",
)  # fmt: skip


def pod_to_arrays(pod: POD) -> dict[str, np.ndarray]:
    """Return the arrays of a fitted POD; what is not an array is JSON, as bytes, in "header"."""
    arrays = {f"coord.{name}": coord.values for name, coord in pod.mask_.coords.items()}
    texts = {k: v.astype(str).tolist() for k, v in arrays.items() if v.dtype.kind not in "fiub"}
    header = {name: getattr(pod, name) for name in _SCALARS} | {
        "params": pod.get_params(),
        "dims": pod.space_dims_,
        "dtype": str(pod.dtype_),
        "coords": {k: [v.dims, dict(v.attrs)] for k, v in pod.mask_.coords.items()},
        "texts": texts,
    }
    arrays = {k: v for k, v in arrays.items() if k not in texts}
    arrays["header"] = np.frombuffer(json.dumps(header, default=_plain).encode(), np.uint8)
    for name in ("modes_", "mask_", "weights_"):
        arrays[name] = getattr(pod, name).values
    for name in _VECTORS:
        arrays[name] = getattr(pod, name)
    return arrays | {"coefficients": pod._coefficients}


def pod_from_arrays(kind: type[POD], arrays: Mapping[str, np.ndarray]) -> POD:
    """Return the POD of `pod_to_arrays`.

    Raises:
        DataError: the arrays are not those of a POD.
    """
    try:
        header = json.loads(np.asarray(arrays["header"], np.uint8).tobytes())
        pod = kind(**header["params"])
        for name in _SCALARS:
            setattr(pod, name, header[name])
        pod.space_dims_, pod.dtype_ = tuple(header["dims"]), np.dtype(header["dtype"])
        for name in _VECTORS:
            setattr(pod, name, np.array(arrays[name]))
        pod._coefficients = np.array(arrays["coefficients"])
        mask = np.array(arrays["mask_"], bool)
        pod.mask_ = xr.DataArray(
            mask, dims=pod.space_dims_, coords=_coords(header, arrays), name="mask"
        )
        pod._set_fields(np.array(arrays["modes_"]), np.array(arrays["weights_"]))
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"not the arrays of a POD ({error!r})", fix="POD.to_arrays()") from None
    return pod


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

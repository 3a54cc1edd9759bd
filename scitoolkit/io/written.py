"""Datasets that refuse to answer for values that nobody wrote.

HDF5, NetCDF and Zarr return a fill value for chunks, rows and sources that are not there. What a
format knows about them is asked when they are read, so that the other variables of a file, and the
other rows, can be used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

from scitoolkit.core.log import get_logger
from scitoolkit.io.formats.base import Format, Refusal
from scitoolkit.io.loader.packing import Packing
from scitoolkit.io.missing_attributes import LIMITS

log = get_logger(__name__)

if TYPE_CHECKING:
    import xarray as xr


def refusing(dataset: xr.Dataset, kind: type[Format], path: Path) -> xr.Dataset:
    """Return a dataset that raises when values are read that were never written.

    Args:
        dataset: as the format opened the file, lazy.
        kind: the format.
        path: the file.

    Raises:
        DataError: such a coordinate of a dim.
    """
    import xarray as xr

    variables = {str(name): variable for name, variable in dataset.variables.items()}
    refusals = kind.unwritten(path, variables)
    checked = {}
    for name, refuse in refusals.items():
        variable = variables[name]
        if name in dataset.indexes:
            refuse(tuple(slice(0, size) for size in variable.shape), variable.values)
            continue
        if variable.chunks is not None:
            data = variable.data.map_blocks(
                _checked,
                refuse=refuse,
                dtype=variable.dtype,
                meta=np.empty((0,) * variable.ndim, variable.dtype),
            )
        else:
            data = indexing.LazilyIndexedArray(_RefusingArray(variable, refuse))
        checked[name] = xr.Variable(variable.dims, data, variable.attrs, variable.encoding)
    return _with_variables(dataset, checked)


def _with_variables(dataset: xr.Dataset, changed: dict[str, xr.Variable]) -> xr.Dataset:
    """Return a dataset with some variables changed, which closes the files of the original."""
    if not changed:
        return dataset
    made = dataset.assign({k: v for k, v in changed.items() if k not in dataset.coords})
    made = made.assign_coords({k: v for k, v in changed.items() if k in dataset.coords})
    made.set_close(dataset.close)
    return made


def _checked(block: np.ndarray, refuse: Refusal, block_info: Any = None) -> np.ndarray:
    """Return a block of dask after the check of its place in the array."""
    refuse(tuple(slice(*ends) for ends in block_info[0]["array-location"]), block)
    return block


class _RefusingArray(BackendArray):
    """Lazy array of a variable that asks a format before it returns values.

    Args:
        variable: lazy.
        refuse: raises for a window with values that were never written.
    """

    def __init__(self, variable: xr.Variable, refuse: Refusal) -> None:
        self.variable = variable
        self.refuse = refuse
        self.shape = variable.shape
        self.dtype = variable.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Return a selection."""
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        whole = (*key, *[slice(None)] * (len(self.shape) - len(key)))
        picked = [
            range(size)[one] if isinstance(one, slice) else range(int(one), int(one) + 1)
            for one, size in zip(whole, self.shape, strict=True)
        ]
        if not all(picked):
            return np.asarray(self.variable[key].values)
        window = tuple(slice(min(part), max(part) + 1) for part in picked)
        # Before the read as well: some libraries end it without a reason.
        self.refuse(window, np.empty((0, *self.shape[1:]), self.dtype))
        values = np.asarray(self.variable[key].values)
        if self.shape:
            rows = values.reshape(len(picked[0]), -1)
            self.refuse(window, rows if picked[0].step > 0 else rows[::-1])
        return values


def within_limits(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset with NaN for values outside the valid range that their variable states.

    Args:
        dataset: decoded, lazy.
    """
    import xarray as xr

    limited: dict[str, xr.Variable] = {}
    for name, variable in dataset.variables.items():
        if name in dataset.indexes or variable.dtype.kind not in "biuf":
            continue
        about = {**variable.attrs, **variable.encoding}
        stored = np.dtype(about.get("dtype", variable.dtype))
        packing = Packing.of(stored if stored.kind in "biuf" else variable.dtype, about)
        if packing.limits == (-np.inf, np.inf):
            continue
        factor, offset = (1.0, 0.0) if packing.scale is None else (packing.scale, packing.offset)
        # Half a step of packed integers is beyond the rounding of their decoding.
        half = abs(factor) / 2 if packing.scale is not None and stored.kind in "iu" else 0.0
        low, high = sorted(float(limit) * factor + offset for limit in packing.limits)
        if _of_another_unit(variable, low - half, high + half):
            log.warning(
                "variable %s: no value lies within its valid range, %g to %g, which is ignored: "
                "it may be that of another unit",
                name,
                low,
                high,
            )
            continue
        if variable.chunks is not None:
            data = variable.data.map_blocks(_limited, low - half, high + half)
        else:
            data = indexing.LazilyIndexedArray(_LimitedArray(variable, low - half, high + half))
        attributes = {k: v for k, v in variable.attrs.items() if k not in LIMITS}
        limited[str(name)] = xr.Variable(variable.dims, data, attributes, variable.encoding)
    return _with_variables(dataset, limited)


def _of_another_unit(variable: xr.Variable, low: float, high: float) -> bool:
    """Return whether the first and the last entry have values and none of them within limits.

    Arithmetic on a variable may keep its attributes: a range in degC with values in K.
    """
    ends = [variable[:1], variable[-1:]] if variable.ndim else [variable]
    values = np.concatenate([np.ravel(np.asarray(end.values)) for end in ends])
    finite = values[np.isfinite(values)]
    return bool(finite.size) and bool(((finite < low) | (finite > high)).all())


def _limited(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return values as floats, NaN outside the limits."""
    kind = values.dtype if values.dtype.kind == "f" else np.result_type(values.dtype, np.float32)
    return np.where((values < low) | (values > high), kind.type(np.nan), values.astype(kind))


class _LimitedArray(BackendArray):
    """Lazy array of a variable with NaN outside of limits.

    Args:
        variable: lazy.
        low: the smallest valid value.
        high: the largest valid value.
    """

    def __init__(self, variable: xr.Variable, low: float, high: float) -> None:
        self.variable, self.low, self.high = variable, low, high
        self.shape = variable.shape
        self.dtype = _limited(np.empty(0, variable.dtype), low, high).dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Return a selection."""
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        return _limited(np.asarray(self.variable[key].values), self.low, self.high)

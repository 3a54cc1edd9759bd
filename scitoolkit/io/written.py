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

from scitoolkit.io.formats.base import Format, Refusal

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
    if not checked:
        return dataset
    made = dataset.assign({k: v for k, v in checked.items() if k not in dataset.coords})
    made = made.assign_coords({k: v for k, v in checked.items() if k in dataset.coords})
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

"""Format of numpy's .npy files: single arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.formats.base import Format, file_head, plain_dims
from scitoolkit.io.loader.files import DataFile
from scitoolkit.io.loader.rows import StridedReader, missing_variable
from scitoolkit.io.numpy_file import load_array

if TYPE_CHECKING:
    import xarray as xr

    from scitoolkit.io.loader.rows import RowReader, VariableLayout

VARIABLE = "values"


class Npy(Format):
    """Memory-mapped array: the variable `values` with dims dim_0, dim_1, ..."""

    name: ClassVar[str] = "npy"
    single_array: ClassVar[bool] = True
    unnamed_dims: ClassVar[bool] = True

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 1 for numpy's signature."""
        return float(file_head(path, 6) == b"\x93NUMPY")

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Open the array as a memory map."""
        import xarray as xr

        mapped = _map(path)
        dataset = xr.Dataset({VARIABLE: (plain_dims(mapped.ndim), mapped)})
        return dataset if chunks is None else dataset.chunk(chunks)

    @classmethod
    def row_readers(
        cls,
        path: Path,
        names: list[str],
        layout_of: Callable[..., VariableLayout],
        *,
        allow_unwritten: bool = False,
    ) -> dict[str, RowReader]:
        """Return a reader of rows along the first dim."""
        mapped = _map(path)
        if unknown := [name for name in names if name != VARIABLE]:
            raise missing_variable(unknown[0], [VARIABLE], path)
        layout = layout_of(
            name=VARIABLE,
            path=str(path),
            shape=mapped.shape,
            dims=plain_dims(mapped.ndim),
            dtype=mapped.dtype,
            chunks=None,
            filters=(),
            attrs={},
        )
        if layout.axis or np.isfortran(mapped):
            raise DataError(
                "samples are not along the first dim in C order",
                where=layout.where,
                fix="np.save(path, np.ascontiguousarray(np.moveaxis(array, axis, 0)))",
            )
        stride = mapped.strides[0] if mapped.ndim else 0
        return {VARIABLE: StridedReader(layout, DataFile(path), mapped.offset, stride)}


def _map(path: Path) -> np.memmap:
    mapped = load_array(path, mapped=True)
    assert isinstance(mapped, np.memmap)
    return mapped

"""Format of classic NetCDF files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from scitoolkit.io._netcdf3 import require_whole_netcdf3
from scitoolkit.io.formats.base import Format, Refusal, file_head, open_lazily
from scitoolkit.io.loader.netcdf3 import default_fill, netcdf3_readers
from scitoolkit.io.loader.rows import require_written

if TYPE_CHECKING:
    import xarray as xr

    from scitoolkit.io.loader.rows import RowReader, VariableLayout


class NetCDF3(Format):
    """Classic NetCDF with 32-bit or 64-bit offsets."""

    name: ClassVar[str] = "netcdf3"

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 1 for the signatures of CDF-1 and CDF-2."""
        return float(file_head(path, 4) in (b"CDF\x01", b"CDF\x02"))

    @classmethod
    def advice(cls, path: Path) -> tuple[str, str] | None:
        """Return the problem and fix for CDF-5 and other files that start like NetCDF."""
        head = file_head(path, 4)
        if head[:3] != b"CDF":
            return None
        problem = "CDF-5 is not supported" if head == b"CDF\x05" else "format not recognised"
        return f"{problem} ({path.stat().st_size} bytes)", "nccopy -k nc4 IN OUT"

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Open through scipy after checking that the file is not truncated."""
        require_whole_netcdf3(path)
        return open_lazily(path, "scipy", chunks=chunks, decode=decode)

    @classmethod
    def unwritten(cls, path: Path, variables: Mapping[str, xr.Variable]) -> dict[str, Refusal]:
        """Return what refuses the library's value of cells that were never written."""
        refusals = {}
        for name, variable in variables.items():
            stated = {**variable.attrs, **variable.encoding}
            fill = default_fill(variable.dtype, stated)
            if fill is not None and variable.ndim and "scale_factor" not in stated:
                refusals[name] = _refusal(fill, f"{path}: variable {name}")
        return refusals

    @classmethod
    def unwritten_entries(
        cls, path: Path, name: str, values: np.ndarray, attrs: Mapping[str, Any]
    ) -> np.ndarray | None:
        """Return the entries with the library's value of cells that were never written."""
        fill = default_fill(values.dtype, attrs)
        return None if fill is None else values == values.dtype.type(fill)

    @classmethod
    def row_readers(
        cls,
        path: Path,
        names: list[str],
        layout_of: Callable[..., VariableLayout],
        *,
        allow_unwritten: bool = False,
    ) -> dict[str, RowReader]:
        """Return readers of rows along the first dim."""
        return netcdf3_readers(path, names, layout_of)


def _refusal(fill: float, where: str) -> Refusal:
    return lambda window, values: require_written(values, fill, where, window[0].start)

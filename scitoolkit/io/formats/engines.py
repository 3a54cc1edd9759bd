"""Formats that xarray's installed engines open: GRIB, CDF-5 and others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.errors import DataError
from scitoolkit.io.formats.base import Format, open_lazily

if TYPE_CHECKING:
    import xarray as xr

# Engines of formats that have a member here; `store` opens no paths.
_OURS = ("h5netcdf", "scipy", "zarr", "store")


class XarrayEngine(Format):
    """Any format that an installed engine of xarray recognises, read without planning."""

    name: ClassVar[str] = "xarray"
    highest_guess: ClassVar[float] = 0.1

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 0.1 where an engine says that it can open the path."""
        return 0.1 if _engine(path) else 0.0

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Open through the engine."""
        engine = _engine(path)
        if not engine:
            raise DataError("no engine of xarray opens it", where=str(path))
        return open_lazily(path, engine, chunks=chunks, decode=decode)


def _engine(path: Path) -> str:
    from xarray.backends.plugins import list_engines

    for name, engine in list_engines().items():
        if name not in _OURS and engine.guess_can_open(path):
            return str(name)
    return ""

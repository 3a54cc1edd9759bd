"""Formats supported through installed xarray engines: GRIB, CDF-5 and others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.errors import DataError
from scitoolkit.io.formats.base import Format, open_lazily

if TYPE_CHECKING:
    import xarray as xr

# Engines whose formats are separate members; `store` does not open paths.
_COVERED = ("h5netcdf", "scipy", "zarr", "store")


class XarrayEngine(Format):
    """Any format recognised by an installed xarray engine; without row readers."""

    name: ClassVar[str] = "xarray"
    highest_guess: ClassVar[float] = 0.1

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 0.1 if an engine can open the path."""
        return 0.1 if _engine(path) else 0.0

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Open through the engine."""
        engine = _engine(path)
        if not engine:
            raise DataError("no installed xarray engine opens the file", where=str(path))
        return open_lazily(path, engine, chunks=chunks, decode=decode)


def _engine(path: Path) -> str:
    from xarray.backends.plugins import list_engines

    for name, engine in list_engines().items():
        if name not in _COVERED and engine.guess_can_open(path):
            return str(name)
    return ""

"""Formats supported through xarray engines: GRIB through cfgrib, CDF-5 and others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.errors import DataError, missing_extra
from scitoolkit.io.formats.base import Format, file_head, open_lazily

if TYPE_CHECKING:
    import xarray as xr

# Engines whose formats are separate members; `store` does not open paths, `kerchunk` takes all.
_COVERED = ("h5netcdf", "scipy", "zarr", "kerchunk", "store")


class XarrayEngine(Format):
    """GRIB through cfgrib, and what other installed xarray engines recognise; not row by row."""

    name: ClassVar[str] = "xarray"
    highest_guess: ClassVar[float] = 0.1

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 0.1 for the first bytes of GRIB, or if an engine can open the path."""
        return 0.1 if _is_grib(path) or _engine(path) else 0.0

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Open through the engine."""
        if _is_grib(path):
            return _grib(path, chunks, decode)
        engine = _engine(path)
        if not engine:
            raise DataError("no installed xarray engine opens the file", where=str(path))
        return open_lazily(path, engine, chunks=chunks, decode=decode)


def _is_grib(path: Path) -> bool:
    return file_head(path, 4) == b"GRIB"


def _grib(path: Path, chunks: Any, decode: bool) -> xr.Dataset:
    """Open a GRIB file without writing an index beside it.

    Raises:
        BackendError: cfgrib is not installed.
        DataError: messages that are no single hypercube, such as fields on two kinds of levels.
    """
    try:
        from cfgrib import DatasetBuildError
    except (ImportError, RuntimeError):  # the latter if the library of ecCodes is not found
        raise missing_extra("cfgrib", "grib", "reading GRIB files") from None
    try:
        # `raise` refuses what cfgrib leaves out otherwise with a line in its log.
        options: dict[str, Any] = {"indexpath": "", "errors": "raise"}
        return open_lazily(path, "cfgrib", chunks=chunks, decode=decode, **options)
    except DatasetBuildError as error:
        raise DataError(
            f"its messages make no single array ({' '.join(str(error).split())[:200]})",
            where=str(path),
            allowed="one grid, one kind of level, one set of times and steps",
            fix=f"grib_copy {path.name} '{path.stem}_[typeOfLevel]{path.suffix}'",
        ) from None


def _engine(path: Path) -> str:
    from xarray.backends.plugins import list_engines

    for name, engine in list_engines().items():
        if name not in _COVERED and engine.guess_can_open(path):
            return str(name)
    return ""

"""Writing of NetCDF4 files, without a crash of the HDF5 library on a full disk."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scitoolkit.io.unfailing_file import UnfailingFile

if TYPE_CHECKING:
    import xarray as xr


def write_netcdf(dataset: xr.Dataset, path: Path) -> None:
    """Write a dataset to a new NetCDF4 file, as `Dataset.to_netcdf` does.

    Raises:
        OSError: the disk is full or cannot be written.

    Example:
        >>> import tempfile
        >>> import xarray as xr
        >>> file = Path(tempfile.mkdtemp()) / "u.nc"
        >>> write_netcdf(xr.Dataset({"u": ("x", [1.0, 2.0])}), file)
        >>> with xr.open_dataset(file, engine="h5netcdf") as found:
        ...     found["u"].values.tolist()
        [1.0, 2.0]
    """
    with contextlib.closing(UnfailingFile(path)) as file:
        write_into(dataset, file)


def write_into(dataset: xr.Dataset, file: UnfailingFile) -> None:
    """Write a dataset as NetCDF4 into an empty file, which remains open.

    Raises:
        OSError: a write failed.
    """
    import h5netcdf
    from xarray.backends import H5NetCDFStore
    from xarray.backends.common import ArrayWriter

    class CheckingWriter(ArrayWriter):
        """Writer of arrays that stops after a write that failed."""

        def add(self, source: Any, target: Any, region: Any = None) -> None:
            """Write an array, or keep it for `sync` if it is not computed."""
            file.check()
            super().add(source, target, region)

    store, writer = H5NetCDFStore(h5netcdf.File(file, "w")), CheckingWriter()
    try:
        dataset.dump_to_store(store, writer=writer)
        writer.sync()
    finally:
        store.close()
    file.check()

"""Writing of NetCDF4 files, without a crash of the HDF5 library on a full disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scitoolkit.core.errors import system_error
from scitoolkit.core.uncaught import note_hdf5_failure

if TYPE_CHECKING:
    import xarray as xr


def write_netcdf(dataset: xr.Dataset, path: Path) -> None:
    """Write a dataset to a new NetCDF4 file, as `Dataset.to_netcdf` does.

    `to_netcdf` closes the file also after a failed write. HDF5 can crash in a call with a file that
    it could not write, so that such a file stays open until the process ends.

    Raises:
        OSError, RuntimeError: the disk is full or cannot be written.

    Example:
        >>> import tempfile
        >>> import xarray as xr
        >>> file = Path(tempfile.mkdtemp()) / "u.nc"
        >>> write_netcdf(xr.Dataset({"u": ("x", [1.0, 2.0])}), file)
        >>> with xr.open_dataset(file, engine="h5netcdf") as found:
        ...     found["u"].values.tolist()
        [1.0, 2.0]
    """
    from xarray.backends import H5NetCDFStore
    from xarray.backends.common import ArrayWriter

    store, writer = H5NetCDFStore.open(str(path), mode="w"), ArrayWriter()
    try:
        dataset.dump_to_store(store, writer=writer)
        writer.sync()
        store.close()
    except BaseException as error:
        if not stays_open(store, error):
            store.close()
        raise


def stays_open(file: object, error: BaseException) -> bool:
    """Return whether a write failed because of the disk; the file is then never closed."""
    failed = isinstance(error, Exception) and system_error(error) is not None
    if failed:
        note_hdf5_failure(file, error)
    return failed

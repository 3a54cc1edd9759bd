"""Writing of NetCDF4 files, without a crash of the HDF5 library on a full disk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from scitoolkit.core.errors import system_error
from scitoolkit.core.uncaught import hdf5_failed, note_hdf5_failure

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
        with kept_open(store):
            dataset.dump_to_store(store, writer=writer)
            writer.sync()
            store.close()
    except BaseException:
        if not hdf5_failed():
            store.close()
        raise


@contextlib.contextmanager
def kept_open(*files: object) -> Iterator[None]:
    """Keep files of HDF5 open until the process ends if a write fails because of the disk."""
    try:
        yield
    except Exception as error:
        if system_error(error) is not None:
            note_hdf5_failure(*files, error)
        raise

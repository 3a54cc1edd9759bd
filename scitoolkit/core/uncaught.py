"""Hooks for exceptions that nothing catches, which leave out those of HDF5's finalisers.

If a disk is full, HDF5 cannot release the handles of a file. Its writer has already raised the
cause; h5py then prints a traceback for each handle.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

_HDF5_FAILED = threading.Event()


def install_hooks() -> None:
    """Install both hooks in this process; a spawned process does not inherit them."""
    sys.unraisablehook = print_unraisable
    sys.excepthook = print_uncaught


def print_unraisable(unraisable: Any) -> None:
    """Print an exception of a finaliser or callback, except those of HDF5 handles."""
    of = unraisable.object
    where = of if isinstance(of, str) else getattr(of, "__module__", None) or ""
    if where.partition(".")[0] in ("h5py", "h5netcdf"):
        _HDF5_FAILED.set()
    else:
        sys.__unraisablehook__(unraisable)


def print_uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print uncaught exceptions, except those raised inside h5py's finalisers."""
    last = trace
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is not None and last.tb_frame.f_code.co_name.startswith("h5py."):
        _HDF5_FAILED.set()
    else:
        sys.__excepthook__(kind, error, trace)


def hdf5_failed() -> bool:
    """Return whether HDF5 could not release a file, so that it can crash at exit."""
    return _HDF5_FAILED.is_set()

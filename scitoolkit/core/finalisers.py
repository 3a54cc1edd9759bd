"""Errors inside finalisers and callbacks, where Python and h5py can only print them."""

from __future__ import annotations

import _thread
import sys
import threading
from typing import Any


def hook_finalisers() -> None:
    """Print no errors of HDF5 handles that cannot be released, and repeat swallowed Ctrl-Cs.

    For the main function of every process that writes files: the writer of such a file has already
    raised the cause.
    """
    sys.unraisablehook = _repeat_interruption
    sys.excepthook = _print_uncaught


def _repeat_interruption(unraisable: Any) -> None:
    """Raise a KeyboardInterrupt again that arrived inside a callback, where it is swallowed."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        # An immediate interrupt would still be inside the callback.
        timer = threading.Timer(0.05, _thread.interrupt_main)
        timer.daemon = True
        timer.start()
    elif not _is_half_made(unraisable) and not _is_of_hdf5(unraisable):
        sys.__unraisablehook__(unraisable)


def _is_of_hdf5(unraisable: Any) -> bool:
    """Whether HDF5 failed to release a handle; the file's writer has already raised the cause."""
    of = unraisable.object
    where = of if isinstance(of, str) else getattr(of, "__module__", None) or ""
    return where.partition(".")[0] in ("h5py", "h5netcdf")


def _print_uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print uncaught exceptions, except those raised inside h5py's finalisers."""
    last = trace
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not last.tb_frame.f_code.co_name.startswith("h5py."):
        sys.__excepthook__(kind, error, trace)


def _is_half_made(unraisable: Any) -> bool:
    """Whether a finaliser ran on an object whose construction was interrupted."""
    finaliser = getattr(unraisable.object, "__name__", "") in ("__del__", "close")
    return finaliser and issubclass(unraisable.exc_type, AttributeError)

"""Exception classes of the toolkit and the exit code of each.

A message states what is wrong (the value), where (file:key, variable, chunk, frame), what is
allowed, and a fix to paste. `ScitoolkitError` joins the four parts in a fixed order, so that all
messages have the same form and each part can be tested.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterator

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_DATA = 3
EXIT_NUMERICAL = 4
EXIT_INTERRUPTED = 130


class ScitoolkitError(Exception):
    """Base class of all errors raised by scitoolkit.

    Args:
        what: description of the problem, with the offending value.
        where: file:key, variable, chunk, frame or rank of the problem.
        allowed: accepted values.
        fix: remedy, preferably something to paste.

    Example:
        >>> print(DataError("variable 'sts' not found", where="sst.nc", allowed="sst, ice",
        ...                 fix="data.variable=sst"))
        sst.nc: variable 'sts' not found. Allowed: sst, ice. Fix: data.variable=sst
    """

    exit_code = EXIT_FAILURE

    def __init__(self, what: str, *, where: str = "", allowed: str = "", fix: str = "") -> None:
        self.what: str = what
        self.where: str = where
        self.allowed: str = allowed
        self.fix: str = fix
        text = f"{where}: {what}" if where else what
        for label, part in (("Allowed", allowed), ("Fix", fix)):
            if part:
                text = f"{text.rstrip('.')}. {label}: {part}"
        super().__init__(text)


class ConfigError(ScitoolkitError):
    """An invalid configuration, command line or combination of settings."""

    exit_code = EXIT_USAGE


class DataError(ScitoolkitError):
    """Data that is missing, corrupt, or inconsistent with the configuration."""

    exit_code = EXIT_DATA


class CheckpointError(DataError):
    """A checkpoint that is truncated, of another format, or incomplete."""


class NumericalError(ScitoolkitError):
    """Unexpected NaN or Inf, or a violated error bound."""

    exit_code = EXIT_NUMERICAL


class BackendError(ScitoolkitError):
    """A backend (compiler, GPU, communication library, optional package) that cannot be used."""


class Interrupted(ScitoolkitError):
    """A run stopped by a signal after its state was saved."""

    exit_code = EXIT_INTERRUPTED


_SYSTEM_FIX = {
    errno.ENOSPC: "free space there, and in TMPDIR",
    errno.EDQUOT: "free space within the quota",
    errno.EFBIG: "allow larger files: ulimit -f unlimited",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose a folder that you may write, or a file that you may read",
    errno.EPERM: "choose a folder that you may write",
    errno.EMFILE: "allow more open files: ulimit -n 4096",
    errno.ENFILE: "close other programs: this machine has reached its limit of open files",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "check the disk, or use another one",
}


def system_error(error: Exception) -> ScitoolkitError | None:
    """Translate an error caused by the disk, a permission or a limit; None for other causes.

    Example:
        >>> print(system_error(OSError(errno.ENOSPC, "No space left on device", "out.h5")))
        out.h5: No space left on device. Fix: free space there, and in TMPDIR
    """
    cause = _os_error(error)
    number = (cause and cause.errno) or 0
    fix = _SYSTEM_FIX.get(number)
    if cause is None or fix is None:
        return None
    where = "" if cause.filename is None else str(cause.filename)
    return ScitoolkitError(os.strerror(number), where=where, fix=fix)


# HDF5 writes what it holds when a file is closed; h5py raises RuntimeError if that fails.
_HDF5_CAUSE = re.compile(r"\((?:.*?filename = '(.*?)', )?.*?errno = (\d+)", re.DOTALL)


def _os_error(error: Exception) -> OSError | None:
    """Return the error of the operating system that an error is, or whose text it contains."""
    cause = _HDF5_CAUSE.search(str(error))
    if cause and not getattr(error, "errno", None):
        return OSError(int(cause[2]), os.strerror(int(cause[2])), cause[1])
    return error if isinstance(error, OSError) else None


@contextlib.contextmanager
def file_named(path: os.PathLike[str] | str, temporary: object = None) -> Iterator[None]:
    """Name the file in the error of a write, which has no name or that of the temporary file."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        cause = _os_error(error)
        if cause is None or not cause.errno:
            raise
        if cause.filename is None or str(cause.filename) == str(temporary):
            cause.filename = str(path)
        raise cause from None


_READERS = ("h5py", "h5netcdf", "zarr", "numcodecs", "scipy")


def damaged_file(error: BaseException, where: str = "") -> DataError | None:
    """Return the error of a damaged input file if a library raised it while reading one.

    Values are read lazily, so that such an error may surface anywhere in a job.

    Args:
        error: as caught, with its traceback.
        where: the file, if it is known.
    """
    text = " ".join(str(error).split())
    kinds = (OSError, RuntimeError, ValueError, KeyError, IndexError, TypeError, SystemError)
    if not isinstance(error, kinds) or getattr(error, "errno", None) or "errno" in text:
        return None
    module, step = "", error.__traceback__
    while step is not None:
        name = str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        # The standard library runs and decodes on behalf of a reader.
        module, step = module if name in sys.stdlib_module_names else name, step.tb_next
    if module not in _READERS or "write" in text or "flush" in text:
        return None
    return DataError(
        f"damaged or truncated data ({type(error).__name__}: {text[:200]})",
        where=where,
        fix="copy or make the file again",
    )


@contextlib.contextmanager
def damage_named(path: os.PathLike[str] | str) -> Iterator[None]:
    """Raise errors of libraries that read a damaged file as `DataError` with its name."""
    try:
        yield
    except Exception as error:
        named = damaged_file(error, str(path))
        if named is None:
            raise
        raise named from None


def missing_extra(package: str, extra: str, purpose: str) -> BackendError:
    """Return the one-line error for an optional package that is not installed.

    Example:
        >>> print(missing_extra("zarr", "zarr", "reading Zarr stores"))
        reading Zarr stores needs the package 'zarr'. Fix: pip install 'scitoolkit[zarr]'
    """
    return BackendError(
        f"{purpose} needs the package {package!r}", fix=f"pip install 'scitoolkit[{extra}]'"
    )

"""The pool of programs in C, called from Python through ctypes, which releases the GIL."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from pathlib import Path

from scitoolkit.core.errors import BackendError, CheckpointError
from scitoolkit.deploy.packed import MAGIC
from scitoolkit.ops.codegen.compile import compile_portable, find_compiler, load_library, read

UNKNOWN, TOO_LARGE, FILE, MEMORY = 16, 18, 19, 21
"""Statuses of `scitoolkit_pool.h`, which are those of pools from UNKNOWN on."""
_POINTER, _TEXT, _INT, _LONG = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int64
_ARRAYS = (_POINTER, _INT, _POINTER, _INT)
_ARGUMENTS = {
    "new": (_LONG, _POINTER),
    "free": (_POINTER,),
    "add": (_POINTER, _TEXT, _TEXT),
    "remove": (_POINTER, _TEXT),
    "prefetch": (_POINTER, _POINTER, _INT),
    "call": (_POINTER, _TEXT, _TEXT, _LONG, *_ARRAYS, _POINTER),
    "about": (_POINTER, _TEXT),
    "statistics": (_POINTER, _POINTER),
    "error": (),
}
_RESULTS = {"free": None, "about": _TEXT, "statistics": None, "error": _TEXT}


COUNTS = (
    *("calls", "hits", "loads", "evictions", "failures", "models"),
    *("resident_bytes", "held_bytes", "budget_bytes"),
)


class Counts(ctypes.Structure):
    """Counts of a pool: `stk_pool_counts`."""

    _fields_ = tuple((name, ctypes.c_int64) for name in COUNTS)


@functools.cache
def source() -> str:
    """Return the C source of the pool with its header.

    Example:
        >>> "int stk_pool_call(" in source()
        True
    """
    include, header = ('#include "scitoolkit_pool.h"', read(__file__, "scitoolkit_pool.h"))
    return read(__file__, "scitoolkit_pool.c").replace(include, header)


@functools.cache
def library() -> ctypes.CDLL:
    """Return the compiled pool: functions `stk_pool_NAME` with their types.

    Raises:
        BackendError: see `load_library`.
    """
    return typed(load_library(source()))


def file_name() -> str:
    """Return the name of the compiled pool in folders of weights, which identifies its source."""
    return f"scitoolkit_pool-{hashlib.sha256(source().encode()).hexdigest()[:16]}.so"


@functools.cache
def portable() -> bytes:
    """Return the pool compiled for all processors of this architecture."""
    return compile_portable(find_compiler(), source(), ("-O3",))


def beside(weights: Path) -> ctypes.CDLL:
    """Return the compiled pool that an export wrote beside a file of weights.

    Nothing is loaded from the folder of another file.

    Raises:
        CheckpointError: not a file of weights.
        BackendError: no compiled pool, or one for another architecture.
    """
    try:
        with weights.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise CheckpointError("not a file of weights", where=str(weights))
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise CheckpointError(reason, where=str(weights)) from None
    path = weights.absolute().with_name(file_name())
    try:
        return typed(ctypes.CDLL(str(path)))
    except (OSError, AttributeError) as error:
        raise BackendError(
            f"the pool is neither prebuilt nor compiled here, nor beside the weights ({error})",
            where=str(weights),
            fix=f"scitoolkit export RUN -o {weights.name} with this release, or install gcc",
        ) from None


def typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """Return a compiled pool with the types of its functions set."""
    for name, arguments in _ARGUMENTS.items():
        function = getattr(loaded, f"stk_pool_{name}")
        function.argtypes, function.restype = arguments, _RESULTS.get(name, _INT)
    return loaded

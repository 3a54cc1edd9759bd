"""The pool of programs in C, called from Python through ctypes, which releases the GIL."""

from __future__ import annotations

import ctypes
import functools

from scitoolkit.ops.codegen.compile import load_library, read

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


def typed(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """Return a compiled pool with the types of its functions set."""
    for name, arguments in _ARGUMENTS.items():
        function = getattr(loaded, f"stk_pool_{name}")
        function.argtypes, function.restype = arguments, _RESULTS.get(name, _INT)
    return loaded

"""Timing of generated functions in C."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scitoolkit.ops.codegen.compile import load_library, read

Array = np.ndarray


@dataclass(frozen=True)
class Timed:
    """A generated function with arrays of one sample.

    Attributes:
        address: of the function.
        arrays: float32 inputs, then outputs.
        workspace: size in bytes.
    """

    address: int
    arrays: Sequence[Array]
    workspace: int


def shortest(timed: Sequence[Timed], rounds: int, sweep: int = 0) -> list[float]:
    """Return the shortest seconds of a call of each function, called alternately.

    Args:
        timed: functions with equal numbers of arrays.
        rounds: calls of each function; the shortest counts, as other processes may interfere.
        sweep: bytes read before each call, to displace the weights from the caches.
    """
    number = len(timed[0].arrays)
    clock = load_library(_source(number)).measure
    clock.restype = ctypes.c_float
    work = np.zeros(max(t.workspace for t in timed), np.uint8)
    swept = np.zeros(sweep // 4 + 16, np.float32)
    sizes = np.array([t.arrays[0].size for t in timed], np.int64)
    seconds = np.full(len(timed), np.inf)
    pointers = [(ctypes.c_void_p * number)(*(a.ctypes.data for a in t.arrays)) for t in timed]
    many = ctypes.c_void_p * len(timed)
    calls = many(*(t.address for t in timed))
    arrays = many(*(ctypes.addressof(p) for p in pointers))
    for _ in range(rounds):
        clock(
            ctypes.c_int64(len(timed)),
            calls,
            arrays,
            _address(sizes),
            _address(work),
            ctypes.c_int64(len(work)),
            _address(swept),
            ctypes.c_int64(sweep),
            _address(seconds),
        )
    return [float(s) for s in seconds]


def _address(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _source(arrays: int) -> str:
    """Return the C source of the timer for functions of `arrays` arrays."""
    types = "int64_t, " + "void *, " * (arrays + 1) + "int64_t, int32_t *"
    arguments = ", ".join(f"(a)[{k}]" for k in range(arrays))
    call = f"#define CALL(f, a) ((int (*)({types}))(f))(1, {arguments}, work, bytes, 0)"
    return "\n".join(["#include <stdint.h>", call, read(__file__, "clock.c")])

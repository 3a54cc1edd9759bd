"""Weights file of an exported potential, see docs/format/potential-weights.md."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping

import numpy as np

MAGIC, VERSION = b"STKPOTW\n", 2
HEAD = struct.Struct("<8s2iq2i32s")
ENTRY = struct.Struct("<40s2q2i")
HEADER, ALIGNMENT = 96, 64


def pack(arrays: Mapping[str, np.ndarray], model: bytes, real_bytes: int) -> bytes:
    """Return the contents of a weights file.

    Args:
        arrays: by name, in the order of the library's list.
        model: SHA-256 of the library's sources, which library and file must share.
        real_bytes: 4 or 8, bytes of a number of the arithmetic.

    Example:
        >>> file = pack({"shift": np.zeros(3)}, bytes(32), 8)
        >>> file[:7], len(file)
        (b'STKPOTW', 216)
    """
    at = _aligned(HEADER + ENTRY.size * len(arrays))
    entries, data = [], []
    for name, values in arrays.items():
        entries.append(ENTRY.pack(name.encode(), at, values.size, values.itemsize, 0))
        data.append((at, values.tobytes()))
        at = _aligned(at + values.nbytes)
    size = data[-1][0] + len(data[-1][1])
    file = bytearray(size)
    file[:64] = HEAD.pack(MAGIC, VERSION, real_bytes, size, len(arrays), 0, model)
    table = b"".join(entries)
    file[HEADER : HEADER + len(table)] = table
    for place, numbers in data:
        file[place : place + len(numbers)] = numbers
    file[64:96] = hashlib.sha256(file[:64] + file[HEADER:]).digest()
    return bytes(file)


def _aligned(place: int) -> int:
    return -(-place // ALIGNMENT) * ALIGNMENT

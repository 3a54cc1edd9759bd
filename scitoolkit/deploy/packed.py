"""Files of weights, separate from the generated code.

A file `NAME.weights` consists of eight bytes that identify the format, the length of a JSON header
(eight bytes, little-endian), the header, zeros up to a multiple of 64, and the constants of the
generated code. The header names the code, `shell-KEY.so` in the same folder, which all surrogates
of one architecture share, and describes the arrays, units and boxes of this surrogate.
`scitoolkit_pool.c` reads them.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from scitoolkit.deploy.builder import ALIGN

SUFFIX = ".weights"
SHELL = "shell"
"""Prefix of the C functions of code without weights."""
MAGIC = b"STKWTS01"
_LENGTH = struct.Struct("<Q")


def aligned(size: int) -> np.ndarray:
    """Return uninitialised memory for weights, aligned as generated code requires."""
    raw = np.empty(size + ALIGN, np.uint8)
    first = -raw.ctypes.data % ALIGN
    return raw[first : first + size]


def packed(key: str, about: Mapping[str, Any], weights: bytes) -> bytes:
    """Return the content of a file of weights."""
    fields = {"shell": key, "about": about, "bytes": len(weights), "crc32": zlib.crc32(weights)}
    header = json.dumps(fields, allow_nan=False).encode()
    head = MAGIC + _LENGTH.pack(len(header)) + header
    return head + b"\0" * (-len(head) % ALIGN) + weights

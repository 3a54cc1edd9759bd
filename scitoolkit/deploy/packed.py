"""Files of weights, separate from the generated code.

A file `NAME.weights` consists of eight bytes that identify the format, the length of a JSON header
(eight bytes, little-endian), the header, zeros up to a multiple of 64, and the constants of the
generated code. The header names the code, `shell-KEY.so` in the same folder, which all surrogates
of one architecture share, and describes the arrays, units and boxes of this surrogate.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import CheckpointError
from scitoolkit.deploy.builder import ALIGN

SUFFIX = ".weights"
SHELL = "shell"
"""Prefix of the C functions of code without weights."""
MAGIC = b"STKWTS01"
_LENGTH = struct.Struct("<Q")
_LARGEST_HEADER = 64 << 20


@dataclass(frozen=True)
class PackedFile:
    """The header of a file of weights.

    Attributes:
        path: the file.
        key: digest of its code.
        about: functions, arrays, units, boxes.
        start, size: offset and size of the weights in bytes.
        crc: CRC-32 of the weights.
        identity: changes when the file is replaced.
    """

    path: Path
    key: str
    about: dict[str, Any]
    start: int
    size: int
    crc: int
    identity: tuple[int, int, int]

    @property
    def shell(self) -> Path:
        """Path of the library with the code."""
        return self.path.with_name(f"{SHELL}-{self.key}.so")


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


def read_header(path: Path) -> PackedFile:
    """Return the header of a file of weights.

    Raises:
        CheckpointError: no such file, another format, or an invalid header.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            magic, length = file.read(len(MAGIC)), file.read(_LENGTH.size)
            if magic != MAGIC:
                raise _wrong(path, "not a file of weights")
            size = _LENGTH.unpack(length)[0] if len(length) == _LENGTH.size else 0
            if not 0 < size <= min(status.st_size, _LARGEST_HEADER):
                raise _wrong(path, "damaged: its header is truncated")
            text = file.read(size)
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise _wrong(path, reason) from None
    try:
        fields = json.loads(text)
        key, about = fields["shell"], fields["about"]
        number, crc = fields["bytes"], fields["crc32"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _wrong(path, "damaged: its header cannot be read") from None
    head = len(MAGIC) + _LENGTH.size + size
    start = head + -head % ALIGN
    good = (
        isinstance(key, str)
        and re.fullmatch("[0-9a-f]{16}", key)
        and isinstance(about, dict)
        and type(number) is int
        and type(crc) is int
        and number >= 0
    )
    if not good:
        raise _wrong(path, "damaged: its header cannot be read")
    if status.st_size != start + number:
        raise _wrong(path, f"damaged: {status.st_size} bytes, {start + number} expected")
    identity = (status.st_ino, status.st_size, status.st_mtime_ns)
    return PackedFile(path, key, about, start, number, crc, identity)


def read_weights(header: PackedFile, into: np.ndarray, *, verify: bool) -> None:
    """Read the weights into memory.

    Args:
        header: of the file.
        into: uint8 array of at least the size of the weights.
        verify: whether to check the CRC-32.

    Raises:
        CheckpointError: the file is missing, was replaced, is truncated or damaged.
    """
    try:
        with header.path.open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if (status.st_ino, status.st_size, status.st_mtime_ns) != header.identity:
                raise _wrong(header.path, "was replaced while it was read")
            file.seek(header.start)
            filled, view = 0, memoryview(into.data)
            while filled < header.size:
                count = file.readinto(view[filled : header.size])
                if not count:
                    raise _wrong(
                        header.path, f"damaged: {filled} of {header.size} bytes of weights"
                    )
                filled += count
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise _wrong(header.path, reason) from None
    if verify and zlib.crc32(view[: header.size]) != header.crc:
        raise _wrong(header.path, "the weights in it are damaged")


def _wrong(path: Path, what: str) -> CheckpointError:
    return CheckpointError(
        what, where=str(path), fix=f"scitoolkit export RUN -o {path.stem}{SUFFIX}"
    )

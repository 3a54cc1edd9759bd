"""What a NetCDF classic file holds, and how long it must be, from its header alone.

A truncated classic file opens without complaint and then ends in a traceback, or in a bus error,
when the missing part is mapped into memory; so its length is checked first. The same header says
where every row lies.

Source: the NetCDF classic format specification, "The NetCDF file formats", Unidata.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from scitoolkit.core.errors import DataError

_DTYPES = {code: np.dtype(name) for code, name in
           {1: "i1", 2: "S1", 3: ">i2", 4: ">i4", 5: ">f4", 6: ">f8"}.items()}  # fmt: skip
_DIMENSION, _VARIABLE, _ATTRIBUTE = 0x0A, 0x0B, 0x0C
_STREAMING = 0xFFFFFFFF


@dataclass(frozen=True)
class ClassicVariable:
    """One variable of a classic file.

    Args:
        name: its name.
        dims: names of its dims.
        shape: its extent, that of the record dim included.
        dtype: of its values, big-endian.
        begin: position of its first row.
        stride: bytes from one row (of the first dim) to the next.
        attrs: its attributes.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    begin: int
    stride: int
    attrs: dict[str, Any]

    @property
    def row_nbytes(self) -> int:
        """Bytes of a row; of a variable without dims, of its value."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """Position behind its last value."""
        rows = self.shape[0] if self.shape else 1
        return self.begin + (rows - 1) * self.stride + self.row_nbytes if rows else self.begin


class _Header:
    """Reads the primitives of a header; every short read is an EOFError."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def take(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) < count:
            raise EOFError("the header ends too early")
        return data

    def number(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def padded(self, count: int) -> bytes:
        return self.take(_padded(count))[:count]

    def name(self) -> str:
        return self.padded(self.number()).decode("utf-8", "replace")

    def list_length(self, tag: int) -> int:
        found, length = self.number(), self.number()
        if found not in (0, tag):
            raise ValueError(f"unexpected tag {found} in the header")
        return length if found else 0

    def attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self.list_length(_ATTRIBUTE)):
            name, dtype = self.name(), _dtype(self.number())
            count = self.number()
            data = self.padded(count * dtype.itemsize)
            if dtype.kind == "S":
                found[name] = data.decode("utf-8", "replace").rstrip("\x00")
            else:
                values = np.frombuffer(data, dtype)
                found[name] = values[0] if count == 1 else values
        return found


def _padded(count: int) -> int:
    return -(-count // 4) * 4


def _dtype(code: int) -> np.dtype:
    if code not in _DTYPES:
        raise ValueError(f"unknown type {code} in the header")
    return _DTYPES[code]


def classic_variables(path: Path) -> list[ClassicVariable]:
    """Return the variables of a CDF-1 or CDF-2 file.

    Raises:
        EOFError: the header is cut.
        ValueError: the header makes no sense.
    """
    return _variables(path)[0]


def expected_size(path: Path) -> int:
    """Return the fewest bytes that a whole CDF-1 or CDF-2 file with this header has.

    Raises:
        EOFError: the header itself is cut.
        ValueError: the header makes no sense.
    """
    variables, header_end = _variables(path)
    return max([header_end, *(variable.end for variable in variables)])


def _variables(path: Path) -> tuple[list[ClassicVariable], int]:
    with path.open("rb") as file:
        header = _Header(file)
        wide = header.take(4) == b"CDF\x02"
        num_records = header.number()
        dims = [(header.name(), header.number()) for _ in range(header.list_length(_DIMENSION))]
        header.attributes()
        count = header.list_length(_VARIABLE)
        found = [_variable(header, dims, wide) for _ in range(count)]
        end = file.tell()
    records = [v for v in found if 0 in v.shape[:1]]
    # A lone record variable is not padded between its records.
    sizes = [v.row_nbytes for v in records]
    stride = sizes[0] if len(sizes) == 1 else sum(map(_padded, sizes))
    if num_records == _STREAMING:
        # The writer did not know; whole records are counted from the size.
        first = min((v.begin for v in records), default=0)
        num_records = max(0, path.stat().st_size - first) // stride if stride else 0
    return [
        replace(v, shape=(num_records, *v.shape[1:]), stride=stride) if 0 in v.shape[:1] else v
        for v in found
    ], end


def _variable(header: _Header, dims: list[tuple[str, int]], wide: bool) -> ClassicVariable:
    """Return a variable; one with records has 0 for their number and for their distance."""
    name = header.name()
    numbers = [header.number() for _ in range(header.number())]
    attrs = header.attributes()
    dtype = _dtype(header.number())
    header.number()  # vsize, which overflows for large variables: computed instead
    begin = struct.unpack(">Q", header.take(8))[0] if wide else header.number()
    if any(number >= len(dims) for number in numbers):
        raise ValueError("a variable has an unknown dim")
    shape = tuple(dims[number][1] for number in numbers)
    row = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    stride = 0 if shape and shape[0] == 0 else row
    names = tuple(dims[number][0] for number in numbers)
    return ClassicVariable(name, names, shape, dtype, int(begin), stride, attrs)


def require_whole_netcdf3(path: Path) -> None:
    """Refuse a classic file that is shorter than its header says, before anybody maps it.

    Raises:
        DataError: it is too short, or its header makes no sense.
    """
    size = path.stat().st_size
    try:
        expected = expected_size(path)
    except (EOFError, ValueError) as error:
        raise DataError(
            f"damaged or truncated ({size} bytes; {type(error).__name__}: {error})",
            where=str(path),
            fix="copy or make the file again",
        ) from None
    if size < expected:
        raise DataError(
            f"damaged or truncated ({size} bytes; its header says {expected})",
            where=str(path),
            fix="copy or make the file again",
        )

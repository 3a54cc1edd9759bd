"""Parser of NetCDF classic headers: variables, positions of rows, and the expected file size.

A truncated classic file opens without an error, and reading the missing part then fails with a
traceback, or with a bus error if the file is memory-mapped; its size is therefore checked first.

Source: the NetCDF classic format specification, "The NetCDF file formats", Unidata.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from scitoolkit.core.errors import DataError

_DTYPES = {
    code: np.dtype(name)
    for code, name in {1: "i1", 2: "S1", 3: ">i2", 4: ">i4", 5: ">f4", 6: ">f8"}.items()
}
_DIMENSION, _VARIABLE, _ATTRIBUTE = 0x0A, 0x0B, 0x0C
_STREAMING = 0xFFFFFFFF


@dataclass(frozen=True)
class ClassicVariable:
    """Variable of a classic file.

    Args:
        name: of the variable.
        dims: names of the dims.
        shape: extents, including that of the record dim.
        dtype: of the values, big-endian.
        begin: position (bytes) of the first row.
        stride: bytes from one row (of the first dim) to the next.
        attrs: attributes.
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
        """Bytes of a row, or of the value of a scalar."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """Position (bytes) after the last value."""
        rows = self.shape[0] if self.shape else 1
        return self.begin + (rows - 1) * self.stride + self.row_nbytes if rows else self.begin


class _Header:
    """Reader of the primitives of a header; a short read raises EOFError."""

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
        stored_tag, length = self.number(), self.number()
        if stored_tag not in (0, tag):
            raise ValueError(f"unexpected tag {stored_tag} in the header")
        return length if stored_tag else 0

    def attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for _ in range(self.list_length(_ATTRIBUTE)):
            name, dtype = self.name(), _dtype(self.number())
            count = self.number()
            data = self.padded(count * dtype.itemsize)
            if dtype.kind == "S":
                attributes[name] = data.decode("utf-8", "replace").rstrip("\x00")
            else:
                values = np.frombuffer(data, dtype)
                attributes[name] = values[0] if count == 1 else values
        return attributes


def _padded(count: int) -> int:
    return -(-count // 4) * 4


def _dtype(code: int) -> np.dtype:
    if code not in _DTYPES:
        raise ValueError(f"unknown type {code} in the header")
    return _DTYPES[code]


def classic_variables(path: Path) -> list[ClassicVariable]:
    """Return the variables of a CDF-1 or CDF-2 file.

    Raises:
        EOFError: the header is truncated.
        ValueError: the header is invalid.
    """
    return _variables(path)[0]


def expected_size(path: Path) -> int:
    """Return the minimum size (bytes) of a complete CDF-1 or CDF-2 file with this header.

    Raises:
        EOFError: the header is truncated.
        ValueError: the header is invalid.
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
        variables = [_variable(header, dims, wide) for _ in range(count)]
        end = file.tell()
    records = [v for v in variables if 0 in v.shape[:1]]
    # A lone record variable is not padded between its records.
    sizes = [v.row_nbytes for v in records]
    stride = sizes[0] if len(sizes) == 1 else sum(map(_padded, sizes))
    if num_records == _STREAMING:
        # numrecs is STREAMING: infer the record count from the file size.
        first = min((v.begin for v in records), default=0)
        num_records = max(0, path.stat().st_size - first) // stride if stride else 0
    return [
        replace(v, shape=(num_records, *v.shape[1:]), stride=stride) if 0 in v.shape[:1] else v
        for v in variables
    ], end


def _variable(header: _Header, dims: list[tuple[str, int]], wide: bool) -> ClassicVariable:
    """Return a variable; for record variables, number of records and stride are 0."""
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
    """Raise for a classic file that is shorter than its header requires.

    Raises:
        DataError: the file is truncated, or its header is invalid.
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
            f"damaged or truncated ({size} bytes; its header requires {expected})",
            where=str(path),
            fix="copy or make the file again",
        )

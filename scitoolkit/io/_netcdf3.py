"""How long a NetCDF classic file must be, from its header alone.

A truncated classic file opens without complaint and then ends in a traceback, or in a bus error,
when the missing part is mapped into memory; so its length is checked first.

Source: the NetCDF classic format specification, "The NetCDF file formats", Unidata.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8}
_DIMENSION, _VARIABLE, _ATTRIBUTE = 0x0A, 0x0B, 0x0C
_STREAMING = 0xFFFFFFFF


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

    def skip_padded(self, count: int) -> None:
        self.take(_padded(count))

    def skip_name(self) -> None:
        self.skip_padded(self.number())

    def list_length(self, tag: int) -> int:
        found, length = self.number(), self.number()
        if found not in (0, tag):
            raise ValueError(f"unexpected tag {found} in the header")
        return length if found else 0

    def skip_attributes(self) -> None:
        for _ in range(self.list_length(_ATTRIBUTE)):
            self.skip_name()
            size = _type_bytes(self.number())
            self.skip_padded(size * self.number())


def _padded(count: int) -> int:
    return -(-count // 4) * 4


def _type_bytes(code: int) -> int:
    if code not in _TYPE_BYTES:
        raise ValueError(f"unknown type {code} in the header")
    return _TYPE_BYTES[code]


def expected_size(path: Path) -> int:
    """Return the fewest bytes that a whole CDF-1 or CDF-2 file with this header has.

    Raises:
        EOFError: the header itself is cut.
        ValueError: the header makes no sense.
    """
    with path.open("rb") as file:
        header = _Header(file)
        wide = header.take(4) == b"CDF\x02"
        num_records = header.number()
        lengths = []
        for _ in range(header.list_length(_DIMENSION)):
            header.skip_name()
            lengths.append(header.number())
        header.skip_attributes()
        fixed_ends, records = [0], []
        for _ in range(header.list_length(_VARIABLE)):
            begin, size, is_record = _variable(header, lengths, wide)
            if is_record:
                records.append((begin, size))
            else:
                fixed_ends.append(begin + size)
        end = max(file.tell(), *fixed_ends)
    if records and 0 < num_records < _STREAMING:
        # A lone record variable is not padded between its records.
        stride = records[0][1] if len(records) == 1 else sum(_padded(s) for _, s in records)
        last = max(begin + size for begin, size in records)
        end = max(end, last + (num_records - 1) * stride)
    return end


def _variable(header: _Header, lengths: list[int], wide: bool) -> tuple[int, int, bool]:
    """Return (begin, bytes of all values or of one record, whether it is a record variable)."""
    header.skip_name()
    dims = [header.number() for _ in range(header.number())]
    header.skip_attributes()
    size = _type_bytes(header.number())
    header.number()  # vsize, which overflows for large variables: computed instead
    begin = struct.unpack(">Q", header.take(8))[0] if wide else header.number()
    if any(d >= len(lengths) for d in dims):
        raise ValueError("a variable has an unknown dim")
    shape = [lengths[d] for d in dims]
    is_record = bool(shape) and shape[0] == 0
    for length in shape[1:] if is_record else shape:
        size *= length
    return int(begin), size, is_record

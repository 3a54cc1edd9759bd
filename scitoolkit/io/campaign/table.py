"""Headers of many files as columns, read in parallel.

Files of one writer often differ only in their values. If all bytes of a file that are not values
equal those of a file read before, that file's header is used without opening the file in a library.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError, ScitoolkitError
from scitoolkit.core.processes import available_cores
from scitoolkit.io.campaign.headers import FileHeader, Schema, StoredArray, read_header
from scitoolkit.io.loader.descriptors import limit_reached, too_many_open

PARALLEL_FROM = 2000
_MAX_METADATA = 1 << 16


@dataclass
class HeaderTable:
    """Headers of files as columns.

    Attributes:
        schemas: distinct schemas.
        schema: number of the schema of each file; -1 for unreadable files.
        values: bytes of the small variables of each file, in the order of the schema.
        faults: {number of an unreadable file: arguments of its DataError}.
    """

    schemas: list[Schema] = field(default_factory=list)
    schema: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    faults: dict[int, dict[str, str]] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def header(self, number: int, path: str) -> FileHeader:
        """Return the header of a file.

        Raises:
            DataError: the file is damaged or in an unknown format.
        """
        if number in self.faults:
            raise DataError(**self.faults[number])
        schema, raw, begin = self.schemas[self.schema[number]], self.values[number], 0
        values = {}
        for stored in schema.small:
            part = raw[begin : begin + stored.nbytes]
            values[stored.name] = np.frombuffer(part, stored.dtype).reshape(stored.shape)
            begin += stored.nbytes
        return FileHeader(Path(path), schema, values)

    def add(self, schema: Schema | None, values: bytes, fault: dict[str, str]) -> None:
        """Append the header of the next file, or its fault if `schema` is None."""
        if schema is None:
            self.faults[len(self.schema)] = fault
            self.schema.append(-1)
            self.values.append(b"")
            return
        text = schema_text(schema)
        if text not in self._numbers:
            self._numbers[text] = len(self.schemas)
            self.schemas.append(schema)
        self.schema.append(self._numbers[text])
        self.values.append(values)

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON types; the inverse of `from_json`."""
        return {
            "schemas": [schema_text(s) for s in self.schemas],
            "schema": self.schema,
            "values": [base64.b64encode(v).decode() for v in self.values],
            "faults": list(self.faults.items()),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> HeaderTable:
        """Return a table from the JSON types of `to_json`."""
        table = cls([_schema(json.loads(text)) for text in found["schemas"]], found["schema"])
        table.values = [base64.b64decode(v) for v in found["values"]]
        table.faults = dict(map(tuple, found["faults"]))
        table._numbers = {text: i for i, text in enumerate(found["schemas"])}
        return table

    def row(self, number: int) -> tuple[Schema | None, bytes, dict[str, str]]:
        """Return the arguments of `add` of a file."""
        at = self.schema[number]
        return (
            self.schemas[at] if at >= 0 else None,
            self.values[number],
            self.faults.get(number, {}),
        )


def schema_text(schema: Schema) -> str:
    """Return a schema as canonical JSON text (cached)."""
    if "text" not in schema.__dict__:
        described = [asdict(v) for v in schema.variables.values()]
        for one in described:
            del one["values"]
        text = json.dumps([schema.format, described, schema.attrs])
        object.__setattr__(schema, "text", text)
    return str(schema.__dict__["text"])


def _schema(found: Sequence[Any]) -> Schema:
    def stored(entry: dict[str, Any]) -> StoredArray:
        lists: dict[str, Any] = {
            k: tuple(entry[k]) if entry[k] is not None else None
            for k in ("shape", "dims", "chunks", "scales")
        }
        return StoredArray(**{**entry, **lists})

    name, variables, attrs = found
    return Schema(name, {v["name"]: stored(v) for v in variables}, attrs)


def read_headers(paths: Sequence[str]) -> HeaderTable:
    """Return the headers of files, read by several processes if there are many files."""
    workers = min(available_cores(), 8, len(paths) // (PARALLEL_FROM // 2))
    if len(paths) < PARALLEL_FROM or workers < 2:
        return read_share(paths)
    bounds = np.linspace(0, len(paths), workers + 1).astype(int).tolist()
    parts = [paths[a:b] for a, b in itertools.pairwise(bounds)]
    command = [sys.executable, "-m", "scitoolkit.io.campaign.worker"]
    running = [subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in parts[1:]]
    for process, part in zip(running, parts[1:], strict=True):
        assert process.stdin is not None
        # A worker reads its list to the end before it answers, so that neither side waits for the
        # other.
        process.stdin.write(json.dumps(part))
        process.stdin.close()
    try:
        table = read_share(parts[0])
        for process, part in zip(running, parts[1:], strict=True):
            answer = _answer(process, part)
            for number in range(len(part)):
                table.add(*answer.row(number))
    finally:
        for process in running:
            process.kill()
            process.wait()
    return table


def read_share(paths: Sequence[str]) -> HeaderTable:
    """Return the headers of files, read in this process."""
    reading, table = _Reading(), HeaderTable()
    for path in paths:
        table.add(*reading.read(path))
    return table


def _answer(process: subprocess.Popen[str], part: Sequence[str]) -> HeaderTable:
    assert process.stdout is not None
    text = process.stdout.read()
    if not text:
        # The worker failed: read its files here, where errors are reported.
        return read_share(part)
    table = json.loads(text)
    return HeaderTable.from_json(table)


class _Reading:
    """Reader of headers that recognises files equal to an earlier one except for values."""

    def __init__(self) -> None:
        self.gaps: dict[int, list[list[tuple[int, int]]]] = {}
        self.known: dict[bytes, Schema] = {}

    def read(self, path: str) -> tuple[Schema | None, bytes, dict[str, str]]:
        """Return schema and values of a file, or its fault; see `HeaderTable.add`."""
        try:
            return *(self._known(path) or self._read(path)), {}
        except ScitoolkitError as error:
            if error.what == limit_reached(path).what:
                raise
            parts = ("what", "where", "allowed", "fix")
            return None, b"", {name: getattr(error, name) for name in parts}

    def _read(self, path: str) -> tuple[Schema, bytes]:
        header = read_header(Path(path))
        schema = header.schema
        if (gaps := _gaps(schema, path)) is not None:
            size = gaps[-1][1]
            of_size = self.gaps.setdefault(size, [])
            if gaps not in of_size:
                of_size.append(gaps)
            with open(path, "rb", buffering=0) as file:
                self.known[_metadata(file.fileno(), gaps)] = schema
        return schema, b"".join(
            np.ascontiguousarray(header.values[v.name]).tobytes() for v in schema.small
        )

    def _known(self, path: str) -> tuple[Schema, bytes] | None:
        if not self.gaps:
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            if too_many_open(error):
                raise limit_reached(path) from None
            return None  # the library raises the error
        try:
            size = os.fstat(descriptor).st_size
            for gaps in self.gaps.get(size, ()):
                schema = self.known.get(_metadata(descriptor, gaps))
                if schema is not None:
                    values = [os.pread(descriptor, v.nbytes, v.offset) for v in schema.small]
                    return schema, b"".join(values)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return None


def _gaps(schema: Schema, path: str) -> list[tuple[int, int]] | None:
    """Return the ranges (begin, end) of all bytes that are not values; None if unknown.

    The last range ends with the file.
    """
    arrays = [v for v in schema.variables.values() if v.nbytes]
    if schema.format != "hdf5" or any(v.offset < 0 for v in arrays):
        return None
    size, gaps, begin = os.stat(path).st_size, [], 0
    for offset, nbytes in sorted((v.offset, v.nbytes) for v in arrays):
        # Equal bytes between the values mean equal headers: names, attributes and places of all
        # arrays.
        gaps.append((begin, offset))
        begin = max(begin, offset + nbytes)
    gaps.append((begin, size))
    return gaps if sum(b - a for a, b in gaps) <= _MAX_METADATA else None


def _metadata(descriptor: int, gaps: Sequence[tuple[int, int]]) -> bytes:
    """Return a digest of the bytes that are not values, and of their positions."""
    digest = hashlib.blake2b(repr(gaps).encode(), digest_size=20)
    for begin, end in gaps:
        if end > begin:
            digest.update(os.pread(descriptor, end - begin, begin))
    return digest.digest()

"""Stream format: magic, version, a checksummed JSON header, and sections with length and CRC.

    "SciC" version:u8 crc32:u32 [values:u32] varint(len) header {varint(len) crc32:u32}* sections

`values`, from version 2 on, is the CRC of the decoded values that were verified against the bound.
The first CRC covers the version, `values`, the header and the table of sections, and the table
has the CRCs of the sections, so that every byte is verified before memory is allocated for it or
it is passed to a C decoder. The header is JSON, deflated with a preset dictionary to keep small
streams short. Nothing is unpickled.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from scitoolkit.core.errors import DataError
from scitoolkit.io.compressed import MAGIC

# Version 1 has no CRC of the decoded values; streams of slabs are still written in version 1.
VERSIONS = (1, 2)
VALUES_CRC = "values_crc"
MAX_HEADER = 1 << 20
MAX_SECTIONS = 1 << 16
# Part of the format since version 1: any change makes existing streams unreadable.
_DICTIONARY = (
    b'"slabs":"fill":1e+20,"relaxed":"2x","error_bound":"mode":"psnr","value":"mode":"pw_rel",'
    b'"mode":"abs","value":"dtype":"|b1","dtype":"<i8","dtype":"<f2","dtype":">f4",'
    b'"base":{"name":"constant","value":"base":{"name":"lossless"},"max_error":0.0,'
    b'"base":{"name":"zfp","version":"1.0.1","error_bound":'
    b'"base":{"name":"sperr","version":"7.0.0","error_bound":'
    b'"base":{"name":"sz3","version":"1.1.0","error_bound":'
    b'"enhancer":{"name":"network","clip":1.0,"check":"sections":["base","signs","zeros"]}'
    b'"sections":["base","mask"]}"sections":["base","patch"]}"sections":["base"]}'
    b'"sections":["base","enhancer"]}"sections":["base","corrections"]}'
    b'{"dtype":"<f8","shape":[64,64,64],"bound":{"mode":"rel","value":0.0001},'
    b'{"dtype":"<f4","shape":[512,512,512],"bound":{"mode":"rel","value":0.001},"range":[-1.0,'
    b'{"dtype":"<f4","shape":[128,128,128],"bound":{"mode":"rel","value":0.1},"range":[0.0,'
    b'"base":{"name":"dyadic","steps":1.0,"offset":-1.0,"shrink":[12,8]},"max_error":'
    b'{"dtype":"<f4","shape":[256,256,256],"bound":{"mode":"rel","value":0.01},"range":[0.0,1.0],'
    b'"base":{"name":"dyadic","steps":1.5,"offset":0.0,"shrink":[14,7]},'
    b'"enhancer":{"name":"linear","clip":1.0},"max_error":0.0,'
    b'"sections":["base","enhancer","corrections"]}'
)


def pack(header: Mapping[str, Any], sections: Mapping[str, bytes]) -> bytes:
    """Return one stream of a JSON header and named sections.

    Args:
        header: JSON types; the key `sections` is reserved, `VALUES_CRC` is stored separately.
        sections: name -> bytes, stored in this order.

    Example:
        >>> header, sections = unpack(pack({"shape": [2]}, {"base": b"xy"}))
        >>> header["shape"], bytes(sections["base"])
        ([2], b'xy')
    """
    entries = {key: value for key, value in header.items() if key != VALUES_CRC}
    text = json.dumps({**entries, "sections": list(sections)}, separators=(",", ":"))
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=_DICTIONARY)
    packed = squeeze.compress(text.encode()) + squeeze.flush()
    table = b"".join(
        varint(len(data)) + struct.pack("<I", zlib.crc32(data)) for data in sections.values()
    )
    values = struct.pack("<I", header[VALUES_CRC]) if VALUES_CRC in header else b""
    version = bytes([VERSIONS[1] if values else VERSIONS[0]])
    checked = version + values + varint(len(packed)) + packed + table
    crc = struct.pack("<I", zlib.crc32(checked))
    return b"".join([MAGIC, checked[:1], crc, checked[1:], *sections.values()])


def unpack(
    stream: bytes | memoryview, *, verified: bool = True
) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """Return the header and sections of a stream after verifying all checksums.

    Args:
        stream: bytes returned by `pack`.
        verified: False skips the checksums of sections, for readers that decode only parts of a
            section and verify those.

    Raises:
        DataError: not a stream, another version, truncated, or a checksum that does not match.
    """
    view = _bytes_of(stream)
    if len(view) < 10 or bytes(view[:4]) != MAGIC:
        raise DataError(
            "not a scitoolkit stream (no magic)", allowed="bytes made by scitoolkit.compress"
        )
    if view[4] not in VERSIONS:
        raise DataError(
            f"stream of format version {view[4]}",
            allowed=" or ".join(map(str, VERSIONS)),
            fix="install the newer scitoolkit that wrote it; if none did, it is damaged",
        )
    header, table, start = _head(view)
    sections, end = {}, start
    for name, length, crc in table:
        data = view[end : end + length]
        end += length
        if len(data) != length:
            raise _damaged(f"section {name!r} is truncated")
        if verified and zlib.crc32(data) != crc:
            raise _damaged(f"checksum of section {name!r} does not match")
        sections[name] = data
    if end != len(view):
        raise _damaged(f"{len(view) - end} bytes after the last section")
    return header, sections


def unpack_part(
    stream: bytes | memoryview,
) -> tuple[dict[str, Any], dict[str, memoryview], dict[str, tuple[int, int]]]:
    """Return header, available bytes and (begin, end) of each section of a truncated stream.

    Sections that are whole are verified.

    Raises:
        DataError: not a stream, damaged, or truncated before its first section.
    """
    view = _bytes_of(stream)
    if len(view) < 10 or bytes(view[:4]) != MAGIC or view[4] not in VERSIONS:
        return (*unpack(view), {})
    header, table, end = _head(view)
    sections, places = {}, {}
    for name, length, crc in table:
        data = view[end : end + length]
        if len(data) == length and zlib.crc32(data) != crc:
            raise _damaged(f"checksum of section {name!r} does not match")
        sections[name], places[name] = data, (end, end + length)
        end += length
    return header, sections, places


def read_header(stream: bytes | memoryview) -> dict[str, Any]:
    """Return the verified header of a stream, which may be truncated after it."""
    view = _bytes_of(stream)
    if len(view) < 10 or bytes(view[:4]) != MAGIC or view[4] not in VERSIONS:
        return unpack(view)[0]
    return _head(view)[0]


def _bytes_of(stream: bytes | memoryview) -> memoryview:
    try:
        return memoryview(stream).cast("B")
    except TypeError:
        raise DataError(
            f"a stream must be bytes, got {type(stream).__name__}", fix="Path(file).read_bytes()"
        ) from None


def _head(view: memoryview) -> tuple[dict[str, Any], list[tuple[str, int, int]], int]:
    """Return header, table of (name, length, crc) and the position of the first section."""
    (crc,) = struct.unpack_from("<I", view, 5)
    start = 9 if view[4] == VERSIONS[0] else 13
    if len(view) < start:
        raise _damaged("the header is truncated")
    length, position = read_varint(view, start)
    if length > MAX_HEADER or position + length > len(view):
        raise _damaged("the header is truncated")
    header = _inflate(view[position : position + length])
    names = header.get("sections") if isinstance(header, dict) else None
    if not isinstance(names, list) or len(names) > MAX_SECTIONS:
        raise _damaged("the header names no sections")
    position += length
    table = []
    for name in names:
        size, position = read_varint(view, position)
        if position + 4 > len(view):
            raise _damaged("the table of sections is truncated")
        table.append((str(name), size, struct.unpack_from("<I", view, position)[0]))
        position += 4
    # Only now, because the checksum covers the table, whose end is known after parsing it. Nothing
    # has been allocated by its numbers, and the header is limited to MAX_HEADER bytes.
    if zlib.crc32(view[9:position], zlib.crc32(view[4:5])) != crc:
        raise _damaged("checksum of the header does not match")
    # An entry of the JSON header must not pass for the binary field, which version 1 lacks.
    header.pop(VALUES_CRC, None)
    if start > 9:
        (header[VALUES_CRC],) = struct.unpack_from("<I", view, 9)
    return header, table, position


def _inflate(packed: memoryview) -> Any:
    try:
        stretch = zlib.decompressobj(-15, zdict=_DICTIONARY)
        return json.loads(stretch.decompress(packed, MAX_HEADER))
    except (zlib.error, ValueError, RecursionError):
        raise _damaged("the header cannot be read") from None


def varint(value: int) -> bytes:
    """Return a non-negative integer in LEB128: base 128, least significant group first."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return a LEB128 integer and the position after it."""
    value = 0
    # Nine groups of seven bits: larger numbers do not fit the signed 64-bit sizes of the C
    # decoders.
    for shift in range(0, 63, 7):
        if position >= len(view):
            break
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _damaged("a length is truncated")


def _damaged(what: str) -> DataError:
    return DataError(f"damaged stream: {what}", fix="copy the file again from its source")

"""Metadata of an array of a Zarr store, of format 2 or 3, before and after compression."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scitoolkit.compression import chunked
from scitoolkit.compression.native.library import ChunkExtras
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.compressed import CODEC, FILTERED, STREAM, StoreFiles, mark_in_store

if TYPE_CHECKING:
    import zarr

log = get_logger(__name__)
ORIGINAL = "scitoolkit_original"
"""Attribute of a stream: metadata of the original array."""
LAYOUT = 1
# Smaller chunks, which are coded separately, consist mainly of tables; larger ones cost memory.
LEAST_CHUNK, LARGEST_CHUNK = 1 << 15, 1 << 24
# Writing decompressed values through other, possibly lossy codecs could violate their bound.
LOSSLESS = frozenset(
    "bytes transpose gzip zstd blosc crc32c zlib lz4 bz2 lzma shuffle crc32 adler32 fletcher32 "
    "jenkins_lookup3 pcodec".split()
)


@dataclass(frozen=True)
class ArrayMetadata:
    """Metadata of one array.

    Args:
        version: of the Zarr format, 2 or 3.
        fields: content of `.zarray` or `zarr.json`.
        attributes: of the array.
    """

    version: int
    fields: Mapping[str, Any]
    attributes: Mapping[str, Any]

    @classmethod
    def read(cls, files: StoreFiles, path: str) -> ArrayMetadata | None:
        """Return the metadata of the array at a path of a store; None if there is no array."""
        if (metadata := stored_json(files, path, "zarr.json")) is not None:
            array = metadata.get("node_type") == "array"
            return cls(3, metadata, metadata.get("attributes") or {}) if array else None
        if (metadata := stored_json(files, path, ".zarray")) is None:
            return None
        return cls(2, metadata, stored_json(files, path, ".zattrs") or {})

    @property
    def mark(self) -> str:
        """How scitoolkit stored the array, see `mark_in_store`."""
        return mark_in_store(self.fields, self.attributes)

    @property
    def enhancer(self) -> tuple[str, bytes] | None:
        """Name and bytes of the enhancer in the settings of scitoolkit's codec."""
        coders = [*(self.fields.get("filters") or ()), *(self.fields.get("codecs") or ())]
        while coders:
            coder = coders.pop()
            setting = coder.get("configuration", coder)
            coders += setting.get("codecs", ())
            if CODEC in (coder.get("id"), coder.get("name")):
                return ChunkExtras.of(setting).enhancer
        return None

    def write(self, folder: Path) -> None:
        """Write the metadata of an array into its folder."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.version == 3:
            fields = {**self.fields, "attributes": dict(self.attributes)}
            (folder / "zarr.json").write_text(json.dumps(fields, indent=2))
            return
        (folder / ".zarray").write_text(json.dumps(dict(self.fields), indent=4))
        (folder / ".zattrs").write_text(json.dumps(dict(self.attributes), indent=4))

    def coded(
        self,
        array: zarr.Array[Any],
        surveyed: chunked.VariableSurvey,
        attributes: Mapping[str, Any],
    ) -> ArrayMetadata:
        """Return the metadata of the array coded with scitoolkit's codec.

        Args:
            array: the original.
            surveyed: result of `chunked.survey`.
            attributes: to add.
        """
        chunks, shards = _chunks(array, surveyed)
        # The array's fill value is restored bit for bit unless another missing value occurs.
        fill = surveyed.fill
        fields = dict(self.fields)
        if self.version == 2:
            fill = fill if fill is not None else plain_number(array.fill_value)
            settings = surveyed.extras.settings()
            codec = {"id": CODEC, "bound": surveyed.absolute, "fill": fill, **settings}
            fields |= {
                "chunks": list(chunks),
                "filters": [codec],
                "compressor": None,
                "order": "C",
                "dtype": "<" + str(fields["dtype"])[1:],
            }
            return ArrayMetadata(2, fields, {**self.attributes, **attributes})
        setting = {**({} if fill is None else {"fill": fill}), **surveyed.extras.settings()}
        codecs = [{"name": CODEC, "configuration": {"bound": surveyed.absolute, **setting}}]
        if shards:
            (outer,) = (c for c in fields["codecs"] if c["name"] == "sharding_indexed")
            inner = {**outer["configuration"], "codecs": codecs}
            codecs = [{**outer, "configuration": inner}]
        grid = {"chunk_shape": list(shards or chunks)}
        fields |= {"codecs": codecs, "chunk_grid": {"name": "regular", "configuration": grid}}
        return ArrayMetadata(3, fields, {**self.attributes, **attributes})

    def as_bytes(self, size: int, attributes: Mapping[str, Any]) -> ArrayMetadata:
        """Return the metadata of a one-chunk array of bytes that replaces the array."""
        if self.version == 2:
            fields: dict[str, Any] = {
                "zarr_format": 2,
                "shape": [size],
                "chunks": [size],
                "dtype": "|u1",
                "compressor": None,
                "filters": None,
                "fill_value": 0,
                "order": "C",
            }
            return ArrayMetadata(2, fields, attributes)
        fields = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [size],
            "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [size]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "codecs": [{"name": "bytes"}],
            "fill_value": 0,
        }
        return ArrayMetadata(3, fields, attributes)

    def storage(self) -> dict[str, Any]:
        """Return the fields that are replaced by `coded`."""
        keys = (
            ("codecs", "chunk_grid")
            if self.version == 3
            else ("chunks", "filters", "compressor", "order", "dtype")
        )
        return {key: self.fields.get(key) for key in keys}

    def restored(self, where: str) -> ArrayMetadata:
        """Return the metadata of the original without lossy codecs.

        Raises:
            DataError: the array was not compressed, or its attributes are damaged.
        """
        attributes = dict(self.attributes)
        try:
            if self.mark == STREAM:
                original = attributes[ORIGINAL]
                restored = ArrayMetadata(
                    self.version, dict(original["fields"]), dict(original["attributes"])
                )
            else:
                storage = attributes.pop(FILTERED)["storage"]
                restored = ArrayMetadata(self.version, {**self.fields, **storage}, attributes)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"damaged attributes: {error!r}", where=where) from None
        return _without_lossy(restored, where)


def _chunks(
    array: zarr.Array[Any], survey: chunked.VariableSurvey
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return chunks and shards of the compressed array: the original ones if of suitable size."""
    for chunks, shards in ((array.chunks, array.shards), (array.shards, None)):
        if chunks and LEAST_CHUNK <= math.prod(chunks) <= LARGEST_CHUNK:
            return chunks, shards
    return chunked.best_chunk_shape(array, survey), None


def _without_lossy(meta: ArrayMetadata, where: str) -> ArrayMetadata:
    """Return metadata without codecs that may be lossy; version 3 keeps or gets a serializer."""

    def usable(codec: Mapping[str, Any] | None, key: str) -> bool:
        if codec is None:
            return False
        name = str(codec.get(key)).removeprefix("numcodecs.")
        if name in LOSSLESS:
            return True
        log.warning("%s: dropped codec %s, which may be lossy", where, name)
        return False

    fields = dict(meta.fields)
    if meta.version == 2:
        filters = [c for c in fields.get("filters") or () if usable(c, "id")]
        compressor = fields.get("compressor")
        fields["compressor"] = compressor if compressor and usable(compressor, "id") else None
        fields["filters"] = filters or None
        return replace(meta, fields=fields)

    def lossless(codecs: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        out: list[Mapping[str, Any]] = []
        for codec in codecs:
            if codec["name"] == "sharding_indexed":
                inner = codec["configuration"]
                inner = {**inner, "codecs": lossless(inner["codecs"])}
                out.append({**codec, "configuration": inner})
            elif usable(codec, "name"):
                out.append(codec)
        if {"bytes", "sharding_indexed"} & {str(c["name"]) for c in out}:
            return out
        # Version 3 of the format requires this order: codecs of arrays, one serializer, codecs of
        # bytes.
        of_arrays = [c for c in out if c["name"] == "transpose"]
        serializer = {"name": "bytes", "configuration": {"endian": "little"}}
        return [*of_arrays, serializer, *(c for c in out if c not in of_arrays)]

    return replace(meta, fields={**fields, "codecs": lossless(fields["codecs"])})


def names_of_dims(meta: ArrayMetadata) -> list[str]:
    """Return the names of the dims, of which an array may have none."""
    named = meta.fields.get("dimension_names") or meta.attributes.get("_ARRAY_DIMENSIONS") or ()
    return [str(name) for name in named]


def stored_json(files: StoreFiles, path: str, leaf: str) -> dict[str, Any] | None:
    """Return a JSON object of a store, None without it.

    Raises:
        DataError: the file is no JSON object.
    """
    name = f"{path}/{leaf}" if path else leaf
    if name not in files:
        return None
    try:
        metadata = json.loads(files.read(name))
    except ValueError as error:
        raise DataError(f"invalid JSON: {error}", where=f"{files.path}: {name}") from None
    if not isinstance(metadata, dict):
        raise DataError("not a JSON object", where=f"{files.path}: {name}")
    return metadata


def plain_number(value: Any) -> float | None:
    """Return a fill value as a finite number, else None."""
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def number_of_base64(text: str) -> Any:
    """Return the number that xarray wrote as base64 of its bytes; any other text as it is."""
    try:
        (value,) = struct.unpack("<d", base64.standard_b64decode(text))
    except (ValueError, struct.error):
        return text
    return value

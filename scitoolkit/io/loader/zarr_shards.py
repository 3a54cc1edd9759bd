"""Inner chunks that the shards of a Zarr v3 array lack.

A shard holds the positions of its inner chunks in an index at its end or start: pairs (offset,
size) of uint64, 2^64 - 1 for a chunk that was never written. Source: Zarr v3 `sharding_indexed`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError

_ABSENT = 2**64 - 1
_CHECKSUM = 4


@dataclass(frozen=True)
class ShardIndex:
    """Index of shards.

    Attributes:
        shape: of a shard.
        chunk: shape of an inner chunk.
        at_end: whether the index is at the end of a shard.
        dtype: of the index.
        checksum: bytes after the index.
        transposed: whether inner chunks are in another order, so that only the shard is told.
        inner: index of the inner chunks, if these are shards.
        where: for messages.
    """

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    at_end: bool
    dtype: str
    checksum: int
    transposed: bool
    inner: ShardIndex | None
    where: str

    @classmethod
    def of(cls, array: Any, folder: Path) -> ShardIndex | None:
        """Return the index of an array's shards; None if it has none.

        Raises:
            DataError: shards or indices that are compressed.
        """
        metadata = array.metadata
        if int(metadata.zarr_format) != 3:
            return None
        stored = metadata.to_dict()
        shape = tuple(map(int, stored["chunk_grid"]["configuration"]["chunk_shape"]))
        return cls._of(list(stored["codecs"]), shape, str(folder))

    @classmethod
    def _of(cls, codecs: Sequence[Any], shape: tuple[int, ...], where: str) -> ShardIndex | None:
        names = [str(codec["name"]) for codec in codecs]
        if "sharding_indexed" not in names:
            return None
        at = names.index("sharding_indexed")
        settings = codecs[at]["configuration"]
        index = {str(c["name"]): c.get("configuration") or {} for c in settings["index_codecs"]}
        if at + 1 < len(names) or not set(index) <= {"bytes", "crc32c"} or "bytes" not in index:
            raise DataError(
                f"shards with the codecs {', '.join(names)} and an index of {', '.join(index)}, "
                "whose missing chunks cannot be told",
                where=where,
                allowed="sharding as the last codec, with an index of bytes and crc32c",
                fix="write the store again, or state attrs['sparse'] = True",
            )
        chunk = tuple(map(int, settings["chunk_shape"]))
        big = str(index["bytes"].get("endian", "little")) == "big"
        inner = cls._of(list(settings["codecs"]), chunk, where)
        end = str(settings.get("index_location", "end")) == "end"
        checksum = _CHECKSUM if "crc32c" in index else 0
        order = ">u8" if big else "<u8"
        return cls(shape, chunk, end, order, checksum, at > 0, inner, where)

    def absent(
        self, file: Any, start: Sequence[int], shape: Sequence[int]
    ) -> list[tuple[slice, ...]]:
        """Return the regions of an array that a shard lacks.

        Args:
            file: the shard, open for reading.
            start: its first cell.
            shape: of the array; chunks beyond it are never written.

        Raises:
            DataError: the shard is shorter than its index.
        """
        return list(self._absent(file, 0, file.seek(0, 2), start, shape))

    def _absent(
        self, file: Any, begin: int, size: int, start: Sequence[int], shape: Sequence[int]
    ) -> Iterator[tuple[slice, ...]]:
        grid = [n // c for n, c in zip(self.shape, self.chunk, strict=True)]
        count = math.prod(grid)
        length = 16 * count + self.checksum
        if size < length:
            raise DataError(
                f"a shard of {size} bytes, shorter than its index of {length}",
                where=f"{self.where}: {file.name}",
                fix="restore the file",
            )
        file.seek(begin + size - length if self.at_end else begin)
        index = np.frombuffer(file.read(16 * count), self.dtype).reshape(-1, 2)
        places = itertools.product(*map(range, grid))
        if self.transposed:
            # The order of the inner chunks is that of the codecs before: any gap tells the shard.
            if (index == _ABSENT).all(axis=1).any():
                yield tuple(slice(a, a + n) for a, n in zip(start, self.shape, strict=True))
            return
        for at, (offset, nbytes) in zip(places, index.tolist(), strict=True):
            first = [a + n * c for a, n, c in zip(start, at, self.chunk, strict=True)]
            if any(a >= n for a, n in zip(first, shape, strict=True)):
                continue
            if offset == nbytes == _ABSENT:
                yield tuple(slice(a, a + c) for a, c in zip(first, self.chunk, strict=True))
            elif self.inner is not None:
                # The index of an inner shard counts from where that shard begins.
                yield from self.inner._absent(file, begin + offset, nbytes, first, shape)

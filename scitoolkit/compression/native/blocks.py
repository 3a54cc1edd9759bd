"""Coding of a field in independent blocks, in parallel and with decoding of single blocks.

docs/format/blocks.md specifies the format; `native/blocks.c` codes one block.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from scitoolkit.compression.container import read_varint, varint
from scitoolkit.compression.kernel_arguments import extents, folded
from scitoolkit.compression.native.library import call, check
from scitoolkit.compression.threads import map_in_order, threads
from scitoolkit.core.errors import DataError

# Maximum number of points of a block: 64 x 64 x 128 of a large cube, as long rows are coded faster.
POINTS = 1 << 19
VERSION, MAX_EDGE, MAX_SETTINGS = 1, 40, 1 << 13
Span = tuple[int, int]
Extents = tuple[int, int, int]
Window = tuple[Span, Span, Span]


@dataclass(frozen=True)
class BlockPartition:
    """Partition of a field into blocks.

    Attributes:
        shape: extents of the field along z, y, x.
        edges: maximum extents of a block, powers of two.
    """

    shape: Extents
    edges: Extents

    @classmethod
    def of(cls, shape: Extents) -> BlockPartition:
        """Return blocks as close to cubes as `POINTS` allows."""
        edges = [1, 1, 1]
        while True:
            longer = []
            for d in (2, 1, 0):
                grown = [2 * e if i == d else e for i, e in enumerate(edges)]
                points = math.prod(map(min, grown, shape))
                if edges[d] < shape[d] and points <= POINTS:
                    longer.append((edges[d], grown))
            if not longer:
                z, y, x = edges
                return cls(shape, (z, y, x))
            edges = min(longer, key=lambda pair: pair[0])[1]

    @property
    def counts(self) -> Extents:
        """Number of blocks along each dim."""
        z, y, x = (-(-n // e) for n, e in zip(self.shape, self.edges, strict=True))
        return z, y, x

    def __len__(self) -> int:
        return math.prod(self.counts)

    def spans(self, number: int) -> Window:
        """Return begin and end of a block along each dim; block numbers vary fastest along x."""
        places = np.unravel_index(number, self.counts)
        z, y, x = (
            (int(i) * e, min((int(i) + 1) * e, n))
            for i, n, e in zip(places, self.shape, self.edges, strict=True)
        )
        return z, y, x

    def overlapping(self, window: Window) -> Iterator[int]:
        """Yield the numbers of the blocks that a window overlaps."""
        ranges = (
            range(b // edge, -(-e // edge)) for (b, e), edge in zip(window, self.edges, strict=True)
        )
        for place in itertools.product(*ranges):
            yield int(np.ravel_multi_index(place, self.counts))


def encode(values: np.ndarray, bound: float) -> tuple[bytes, np.ndarray, float]:
    """Return the coded field, its decoded values, and the largest error.

    Every block is decoded again, and every decoded value is compared with its original.

    Args:
        values: finite C-contiguous float32 or float64 array, any dims.
        bound: largest |x - x'|, absolute, > 0; it holds at every point.
    """
    shape = folded(values.shape)
    blocks = BlockPartition.of(shape)
    field, decoded = values.reshape(shape), np.empty_like(values)
    settings = _fit(field, blocks, bound)
    buffers = _Buffers(blocks, values.dtype)
    code = partial(_encode_block, field, decoded.reshape(shape), blocks, settings, bound, buffers)
    coded = list(map_in_order(code, range(len(blocks)), threads()))
    head = bytearray([VERSION, *(e.bit_length() - 1 for e in blocks.edges)])
    for number in (len(settings), *(len(data) for data, _ in coded)):
        head += varint(number)
    parts = [bytes(head), settings, *(data for data, _ in coded)]
    return b"".join(parts), decoded, max(error for _, error in coded)


class _Buffers(threading.local):
    """Memory of each thread for coding blocks one after the other, `coded` for the bytes."""

    def __init__(self, blocks: BlockPartition, dtype: np.dtype) -> None:
        shape = tuple(map(min, blocks.edges, blocks.shape))
        size = call("sck_block_workspace", dtype, extents(shape))
        self.workspace = np.empty(size, np.uint8)
        self.coded = np.empty(call("sck_block_capacity", dtype, math.prod(shape)), np.uint8)


@dataclass(frozen=True)
class CodedBlocks:
    """Coded field whose blocks can be decoded separately.

    Attributes:
        blocks: partition of the field.
        dtype: float32 or float64.
        bound: the absolute bound of the encoder.
        settings: coded interpolation settings shared by all blocks.
        data: the coded blocks.
    """

    blocks: BlockPartition
    dtype: np.dtype
    bound: float
    settings: bytes
    data: list[memoryview]

    @classmethod
    def read(
        cls, coded: bytes | memoryview, shape: tuple[int, ...], dtype: np.dtype, bound: float
    ) -> CodedBlocks:
        """Parse the bytes returned by `encode`.

        Raises:
            DataError: the bytes are inconsistent.
        """
        view = memoryview(coded).cast("B")
        if len(view) < 4 or view[0] != VERSION or max(view[1:4]) > MAX_EDGE:
            raise DataError("damaged stream: the header of the blocks is invalid")
        blocks = BlockPartition(folded(shape), (1 << view[1], 1 << view[2], 1 << view[3]))
        # A block has at least a byte for its size: a damaged shape is refused before lists are made
        # of it.
        if len(blocks) > len(view):
            raise DataError("damaged stream: fewer bytes than blocks")
        sizes, at = [], 4
        for _ in range(1 + len(blocks)):
            size, at = read_varint(view, at)
            sizes.append(size)
        ends = [at, *itertools.accumulate(sizes, initial=at)][1:]
        if ends[-1] != len(view) or sizes[0] > MAX_SETTINGS:
            raise DataError("damaged stream: the sizes of the blocks do not match its length")
        parts = [view[a:b] for a, b in itertools.pairwise(ends)]
        return cls(blocks, dtype, bound, bytes(parts[0]), parts[1:])

    def decode(self, out: np.ndarray) -> np.ndarray:
        """Decode all blocks into an array of the field's shape."""
        field, buffers = out.reshape(self.blocks.shape), _Buffers(self.blocks, self.dtype)

        def one(number: int) -> None:
            spans = self.blocks.spans(number)
            self._decode(number, field[tuple(slice(b, e) for b, e in spans)], buffers)

        for _ in map_in_order(one, range(len(self.blocks)), threads()):
            pass
        return out

    def window(self, window: Window) -> np.ndarray:
        """Decode a window of the field; only the blocks that overlap it are decoded."""
        out = np.empty([e - b for b, e in window], self.dtype)
        buffers = _Buffers(self.blocks, self.dtype)

        def one(number: int) -> None:
            spans = self.blocks.spans(number)
            block = np.empty([e - b for b, e in spans], self.dtype)
            self._decode(number, block, buffers)
            both = [(max(b, w), min(e, v)) for (b, e), (w, v) in zip(spans, window, strict=True)]
            to = tuple(slice(b - w, e - w) for (b, e), (w, _) in zip(both, window, strict=True))
            of = tuple(slice(b - s, e - s) for (b, e), (s, _) in zip(both, spans, strict=True))
            out[to] = block[of]

        for _ in map_in_order(one, self.blocks.overlapping(window), threads()):
            pass
        return out

    def _decode(self, number: int, part: np.ndarray, buffers: _Buffers) -> None:
        data = np.frombuffer(self.data[number], np.uint8)
        settings = np.frombuffer(self.settings, np.uint8)
        check(
            call(
                "sck_decode_block",
                self.dtype,
                *_geometry(part),
                settings,
                settings.size,
                float(self.bound),
                data,
                data.size,
                part,
                buffers.workspace,
                buffers.workspace.size,
            )
        )


def _fit(field: np.ndarray, blocks: BlockPartition, bound: float) -> bytes:
    """Return the settings fitted to a block in the middle of the field."""
    places = np.ravel_multi_index([(n - 1) // 2 for n in blocks.counts], blocks.counts)
    part = _part(field, blocks, int(places))
    # Of the whole field: the margin for rounding that C derives from it must suffice in each block.
    largest = ctypes.c_double()
    check(call("sck_largest", field.dtype, field, field.size, ctypes.byref(largest)))
    out = np.empty(MAX_SETTINGS, np.uint8)
    used = call(
        "sck_fit_blocks", field.dtype, *_geometry(part), part, largest, float(bound), out, out.size
    )
    check(used)
    return out[:used].tobytes()


def _encode_block(
    field: np.ndarray,
    decoded: np.ndarray,
    blocks: BlockPartition,
    settings: bytes,
    bound: float,
    buffers: _Buffers,
    number: int,
) -> tuple[bytes, float]:
    part, to = (_part(a, blocks, number) for a in (field, decoded))
    shared, error, out = np.frombuffer(settings, np.uint8), ctypes.c_double(), buffers.coded
    used = call(
        "sck_encode_block",
        part.dtype,
        *_geometry(part),
        part,
        shared,
        shared.size,
        float(bound),
        out,
        out.size,
        to,
        ctypes.byref(error),
        buffers.workspace,
        buffers.workspace.size,
    )
    check(used)
    return out[:used].tobytes(), error.value


def _part(field: np.ndarray, blocks: BlockPartition, number: int) -> np.ndarray:
    return field[tuple(slice(b, e) for b, e in blocks.spans(number))]


def _geometry(part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the extents of a block and the distances between its planes and between its rows."""
    strides = np.array([s // part.itemsize for s in part.strides[:2]], np.int64)
    return extents(part.shape), strides

"""Error-bounded messages: linear quantisation with Huffman-coded multiples.

Each number is rounded to a multiple of twice the error bound. The multiples are small integers,
most of which take 3 to 5 bits as Huffman codes. The bound is a fraction of the root mean square of
each block of 1,024 numbers.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scitoolkit.core.errors import DataError

BLOCK = 1024
LARGEST = 127  # numbers with larger multiples are sent exactly, with their index
_HEAD = struct.Struct("<ddqq")  # exact number, error, exceptions, code bytes (-1: raw)


@dataclass
class SumMessage:
    """Encoded message: the values that the receiver decodes, and the bytes.

    Attributes:
        values: decoded values, float32 (numbers,).
        exact: one more number, sent exactly.
        error: sum of squared encoding errors, including those of earlier encodings.
        data: the bytes, uint8 (bytes,).
    """

    values: NDArray[np.float32]
    exact: float
    error: float
    data: Tensor

    @classmethod
    def of(
        cls, values: NDArray[np.float32], share: float, exact: float, error: float = 0.0
    ) -> SumMessage:
        """Encode numbers.

        Args:
            values: float32 (numbers,); sent without encoding if one is NaN or Inf.
            share: error bound over the root mean square of each block of 1,024 numbers.
            exact: a number to send exactly.
            error: squared error that `values` already have, added to the encoding error.

        Example:
            >>> x = np.linspace(-1, 1, 3000, dtype=np.float32)
            >>> message = SumMessage.of(x, 0.1, 7.0)
            >>> same = SumMessage.read(message.data, 3000)
            >>> bool((same.values == message.values).all()), same.exact, len(message.data) < 2000
            (True, 7.0, True)
        """
        # float32 throughout, so that sender and receivers decode the same bits.
        blocks = np.pad(values, (0, -len(values) % BLOCK)).reshape(-1, BLOCK)
        steps = _steps(blocks, share)
        if steps is None:
            data = _HEAD.pack(exact, error, 0, -1) + values.tobytes()
            return cls(values, exact, error, _tensor(data))
        multiples = np.rint(blocks / np.where(steps > 0, steps, 1)).reshape(-1)[: len(values)]
        places = np.flatnonzero(np.abs(multiples) > LARGEST)
        multiples[places] = 0
        codes = multiples.astype(np.int8)
        exceptions = values[places]
        decoded = _decoded(codes, steps, places, exceptions)
        error += float(((decoded - values).astype(np.float64) ** 2).sum())
        coder = zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
        packed = coder.compress(codes.tobytes()) + coder.flush()
        data = b"".join(
            [
                _HEAD.pack(exact, error, len(places), len(packed)),
                steps.tobytes(),
                places.astype(np.int64).tobytes(),
                exceptions.tobytes(),
                packed,
            ]
        )
        return cls(decoded, exact, error, _tensor(data))

    @classmethod
    def read(cls, data: Tensor, numbers: int) -> SumMessage:
        """Decode a message of `numbers` numbers.

        Raises:
            DataError: the message is damaged, or has another number of values.
        """
        raw = data.numpy().tobytes()
        try:
            exact, error, count, packed = _HEAD.unpack_from(raw)
            if packed < 0:
                values = np.frombuffer(raw, np.float32, numbers, _HEAD.size)
                return cls(values, exact, error, data)
            blocks, begin = -(-numbers // BLOCK), _HEAD.size
            steps = np.frombuffer(raw, np.float32, blocks, begin).reshape(-1, 1)
            places = np.frombuffer(raw, np.int64, count, begin + 4 * blocks)
            begin += 4 * blocks + 8 * count
            exceptions = np.frombuffer(raw, np.float32, count, begin)
            unpacked = zlib.decompressobj(-15).decompress(raw[begin + 4 * count :], numbers)
            codes = np.frombuffer(unpacked, np.int8, numbers)
            values = _decoded(codes, steps, places, exceptions)
        except (struct.error, ValueError, IndexError, OverflowError, zlib.error) as problem:
            raise DataError(f"a message of gradients is damaged ({problem})") from None
        return cls(values, exact, error, data)


def _steps(blocks: NDArray[np.float32], share: float) -> NDArray[np.float32] | None:
    """Return the step of each block, (blocks, 1), 0 for zero blocks; None if not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (blocks.astype(np.float64) ** 2).sum(1, keepdims=True)
        if not np.isfinite(squares).all():
            return None
        # The zero padding of the last block only tightens its bound.
        steps = (2 * share * np.sqrt(squares / BLOCK)).astype(np.float32)
    return np.where(steps >= np.finfo(np.float32).tiny, steps, np.float32(0))


def _decoded(
    codes: NDArray[np.int8],
    steps: NDArray[np.float32],
    places: NDArray[np.int64],
    exceptions: NDArray[np.float32],
) -> NDArray[np.float32]:
    values = codes.astype(np.float32)
    whole = len(values) // BLOCK * BLOCK
    values[:whole].reshape(-1, BLOCK)[:] *= steps[: whole // BLOCK]
    if whole < len(values):
        values[whole:] *= steps[-1]
    values[places] = exceptions
    return values


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)

"""Errors of the first bytes of a coded field, measured when it is written.

A codec that stores coarse levels first can be decoded from the beginning of its data. What such a
picture is worth is unknown to its reader, so a progressive stream states the errors of some
lengths, and a checksum of the data up to each of them.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from scitoolkit.core.errors import DataError

# Shares of a coded field whose errors are stated; .09 leaves room for the header within a tenth.
SHARES = (0.02, 0.05, 0.09, 0.2, 0.4, 0.7)


class StatedError(NamedTuple):
    """The first bytes of a coded field, with their checksum and errors in the array's unit."""

    num_bytes: int
    crc: int
    max_error: float
    rmse: float


def measured_stages(
    values: np.ndarray,
    special: np.ndarray | None,
    data: bytes,
    decode: Callable[[memoryview], np.ndarray],
) -> list[StatedError]:
    """Return the stages of a coded field, each with a smaller mean error than those before.

    Args:
        values: the original.
        special: True where values are restored bit for bit, which have no error; None if nowhere.
        data: the coded field.
        decode: returns the array of the first bytes, or raises DataError if they are too few.
    """
    stages: list[StatedError] = []
    exact = values if special is None else values[~special]
    for share in SHARES:
        part = memoryview(data)[: int(share * len(data))]
        try:
            decoded = np.asarray(decode(part))
        except DataError:
            continue  # weights and verbatim values do not fit into so few bytes
        error = (decoded if special is None else decoded[~special]).astype(np.float64)
        error -= exact
        largest = float(np.abs(error).max(initial=0.0))
        # Squares of errors near 1e200 overflow, those of tiny ones vanish.
        rmse = largest * math.sqrt(float(np.mean((error / largest) ** 2))) if largest else 0.0
        if not stages or rmse < stages[-1].rmse:
            stages.append(StatedError(len(part), zlib.crc32(part), _above(largest), _above(rmse)))
    return stages


def stated_stages(entries: Sequence[Sequence[float]]) -> list[StatedError]:
    """Return the stages of a stream's header.

    Raises:
        DataError: the header is damaged.
    """
    try:
        return [
            StatedError(int(n), int(crc), float(most), float(rmse))
            for n, crc, most, rmse in entries
        ]
    except (TypeError, ValueError):
        raise DataError("damaged stream: its stages cannot be read") from None


def _above(error: float) -> float:
    """Return three significant digits that are not below the error."""
    short = float(f"{error:.2e}")
    return short if short >= error else float(f"{error * 1.005:.2e}")

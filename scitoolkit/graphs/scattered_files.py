"""Rows dealt to many files, of which a bounded number is open at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

Array = np.ndarray
MOST_OPEN = 200  # systems allow a process 256 or 1024 descriptors by default
MOST_NUMBERS = 1 << 16


class ScatteredFiles:
    """Files by kind and number, to which rows are appended.

    Args:
        paths: of each file; all are created, empty. Numbers are below 65,536.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with ScatteredFiles({("in", p): folder / f"{p}.bin" for p in range(2)}) as files:
        ...     files.append("in", np.array([1, 0, 1]), np.array([5, 6, 7], np.int8))
        >>> (folder / "1.bin").read_bytes()
        b'\\x05\\x07'
    """

    def __init__(self, paths: Mapping[tuple[str, int], Path]) -> None:
        self._paths = dict(paths)
        self._open: OrderedDict[tuple[str, int], BinaryIO] = OrderedDict()
        for path in self._paths.values():
            path.write_bytes(b"")

    def __enter__(self) -> ScatteredFiles:
        """Return the files; they are closed on exit."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the files."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def append(self, kind: str, place: Array, values: Array) -> None:
        """Append each row of values to the file with its number, in order.

        Args:
            kind: of the files.
            place: number of the file of each row, shape (rows,).
            values: shape (rows, ...).
        """
        place = place.astype(np.uint16)
        # Stable: the order of edges within a file is that of the input, on which sums of floating-
        # point numbers depend.
        order = np.argsort(place, kind="stable")
        values, counts = values[order], np.bincount(place)
        ends = np.cumsum(counts)
        for number in np.flatnonzero(counts).tolist():
            rows = values[ends[number] - counts[number] : ends[number]]
            self._file(kind, number).write(np.ascontiguousarray(rows).data)

    def _file(self, kind: str, number: int) -> BinaryIO:
        file = self._open.pop((kind, number), None)
        if file is None:
            if len(self._open) >= MOST_OPEN:
                # The one that was written longest ago.
                self._open.popitem(last=False)[1].close()
            file = self._paths[kind, number].open("ab")
        self._open[kind, number] = file
        return file

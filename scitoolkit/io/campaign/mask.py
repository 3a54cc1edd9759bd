"""Masks of grid cells without values, such as land in an ocean or an obstacle in a flow."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

MISSING = "missing"
"""Value of `data.mask` for cells that are NaN, or the file's fill value, in every row."""


@dataclass(frozen=True)
class Mask:
    """Valid cells of a grid, equal in all rows of all simulations.

    Attributes:
        name: `missing`, or the mask variable.
        dims: of the grid.
        valid: (*dims) bool.
        missing: channels whose invalid cells are missing in the files in every row.
        stated: returns the mask in the files of a simulation, (*dims) bool; None for `missing`.
        compared: simulations whose mask was found equal to `valid`.
    """

    name: str
    dims: tuple[str, ...]
    valid: np.ndarray
    missing: frozenset[str] = frozenset()
    stated: Callable[[int], np.ndarray] | None = None
    compared: set[int] = field(default_factory=set)

    def along(self, dims: Sequence[str]) -> np.ndarray | None:
        """Return the valid cells of a field with these dims; None if it is not on the grid."""
        if set(dims) != set(self.dims):
            return None
        return self.valid.transpose([self.dims.index(d) for d in dims])

    @property
    def digest(self) -> str:
        """Text that identifies the mask."""
        return f"{self.name} {','.join(self.dims)} {pack(self.valid)}"


def pack(valid: np.ndarray) -> str:
    """Encode a bool array as text; the inverse of `unpack`.

    Example:
        >>> unpack(pack(np.array([[True, False]])), (1, 2)).tolist()
        [[True, False]]
    """
    return base64.b64encode(zlib.compress(np.packbits(valid).tobytes(), 9)).decode()


def unpack(text: str, shape: Sequence[int]) -> np.ndarray:
    """Decode a bool array of the given shape from a text of `pack`."""
    bits = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    return np.unpackbits(bits, count=int(np.prod(shape))).astype(bool).reshape(shape)

"""The cells of a grid that hold no values: land in an ocean, an obstacle in a flow."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

MISSING = "missing"
"""`data.mask` for cells that are NaN, or the file's fill value, in every row."""


@dataclass(frozen=True)
class Mask:
    """Which cells of a grid are valid, in all rows of all simulations alike.

    Attributes:
        name: `missing`, or the variable that states it.
        dims: of the grid.
        valid: bool, (*dims).
        missing: channels whose other cells are missing in the files, in every row.
        stated: returns what the files of a simulation state, (*dims) bool; None for `missing`.
        compared: simulations whose files were found to state the same.
    """

    name: str
    dims: tuple[str, ...]
    valid: np.ndarray
    missing: frozenset[str] = frozenset()
    stated: Callable[[int], np.ndarray] | None = None
    compared: set[int] = field(default_factory=set)

    def along(self, dims: Sequence[str]) -> np.ndarray | None:
        """Return the valid cells of a field with these dims, None where it is not on the grid."""
        if set(dims) != set(self.dims):
            return None
        return self.valid.transpose([self.dims.index(d) for d in dims])

    @property
    def digest(self) -> str:
        """What differs whenever the mask does."""
        return f"{self.name} {','.join(self.dims)} {pack(self.valid)}"


def pack(valid: np.ndarray) -> str:
    """Return bools as a text; `unpack` undoes it.

    Example:
        >>> unpack(pack(np.array([[True, False]])), (1, 2)).tolist()
        [[True, False]]
    """
    return base64.b64encode(zlib.compress(np.packbits(valid).tobytes(), 9)).decode()


def unpack(text: str, shape: Sequence[int]) -> np.ndarray:
    """Return the bools, (*shape), of a text that `pack` made."""
    bits = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    return np.unpackbits(bits, count=int(np.prod(shape))).astype(bool).reshape(shape)

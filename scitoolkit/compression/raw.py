"""Raw binary files without a header, as written by simulations and benchmark collections."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.numpy_file import save_values

DTYPES = {".f32": "<f4", ".f64": "<f8", ".d64": "<f8"}
"""Suffix -> dtype; little-endian."""


def is_raw(path: Path) -> bool:
    """Return whether a file name has the suffix of a raw binary file.

    Example:
        >>> is_raw(Path("velocity_x.f32")), is_raw(Path("velocity_x.npy"))
        (True, False)
    """
    return path.suffix.lower() in DTYPES


def open_raw(path: Path, shape: tuple[int, ...] | None) -> np.ndarray:
    """Return a raw file as a read-only memory map.

    Args:
        path: with one of the suffixes of `DTYPES`.
        shape: slowest dim first.

    Raises:
        ConfigError: no shape was given.
        DataError: the size of the file does not match dtype or shape.
    """
    dtype = np.dtype(DTYPES[path.suffix.lower()])
    size, rest = divmod(path.stat().st_size, dtype.itemsize)
    if rest or not size:
        raise DataError(
            f"{path.stat().st_size} bytes are not a number of {dtype} values", where=str(path)
        )
    if shape is None:
        raise ConfigError(
            f"a raw file of {size} values needs a shape",
            where=str(path),
            allowed="extents, the slowest dim first",
            fix=f"--shape {_cube(size)}",
        )
    if math.prod(shape) != size:
        raise DataError(
            f"{size} values, not the {math.prod(shape)} of shape {shape}", where=str(path)
        )
    return np.memmap(path, dtype, "r", shape=shape)


def write_raw(path: Path, target: Path, values: np.ndarray) -> None:
    """Write an array to `path` without a header, in the dtype of the suffix of `target`.

    Raises:
        ConfigError: the suffix is of another dtype than the array.
    """
    wanted = np.dtype(DTYPES[target.suffix.lower()])
    if values.dtype.newbyteorder("=") != wanted.newbyteorder("="):
        raise ConfigError(
            f"values are {values.dtype}, {target.suffix} means {wanted}",
            where=str(target),
            allowed="the dtype of the original, or .npy",
        )
    save_values(path, values.astype(wanted, copy=False))


def shape_of(text: str) -> tuple[int, ...]:
    """Parse a shape such as 64x128x128.

    Raises:
        ConfigError: the text is not a shape.

    Example:
        >>> shape_of("64x128x128")
        (64, 128, 128)
    """
    try:
        shape = tuple(int(n) for n in text.replace(",", "x").split("x"))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise ConfigError(f"shape {text!r}", allowed="extents >= 1 such as 64x128x128")
    return shape


def _cube(size: int) -> str:
    side = round(size ** (1 / 3))
    return f"{side}x{side}x{side}" if side**3 == size else str(size)

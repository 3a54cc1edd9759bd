"""Reading of `.npy` files, with DataError for any damage, and writing of arrays.

`numpy.save` and `ndarray.tofile` write past Python's file object: their error for a full disk
lacks the cause ("32768 requested and 16352 written").
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError, file_named

# Exceptions of numpy for a damaged header, which it parses as a Python literal, and of zipfile for
# a damaged, encrypted or newer archive.
DAMAGED = (
    ValueError,
    EOFError,
    KeyError,
    TypeError,
    SyntaxError,
    OverflowError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,
)


def load_array(path: Path | str, *, mapped: bool = False) -> np.ndarray:
    """Return the array of a `.npy` file, without unpickling.

    Args:
        path: the file.
        mapped: whether to return a read-only memory map.

    Raises:
        DataError: no such file, a damaged header, a truncated file, objects or an archive.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.npy"
        >>> np.save(file, np.arange(3))
        >>> load_array(file).tolist()
        [0, 1, 2]
    """
    try:
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except FileNotFoundError:
        raise DataError("missing", where=str(path)) from None
    except (OSError, *DAMAGED) as error:
        what = f"not a readable npy file ({' '.join(str(error).split())[:200]})"
        raise DataError(what, where=str(path)) from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataError("not a readable npy file (an archive)", where=str(path))
    return array


def save_array(path: Path | str, values: np.ndarray) -> None:
    """Write an array as a `.npy` file.

    Raises:
        OSError: with the cause, such as a full disk, and the file.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.npy"
        >>> save_array(file, np.arange(3))
        >>> load_array(file).tolist()
        [0, 1, 2]
    """
    with file_named(path), Path(path).open("wb") as file:
        np.save(_Writer(file.write), values, allow_pickle=False)


def save_values(path: Path | str, values: np.ndarray) -> None:
    """Write the values of an array without a header, in C order.

    Raises:
        OSError: as of `save_array`.
    """
    with file_named(path), Path(path).open("wb") as file:
        file.write(np.ascontiguousarray(values).data)


@dataclass(frozen=True)
class _Writer:
    """What numpy needs of a file; of a real one it uses the descriptor."""

    write: Callable[[Any], int]

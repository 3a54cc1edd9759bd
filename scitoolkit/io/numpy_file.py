"""Reading of `.npy` files, with DataError for any damage."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from scitoolkit.core.errors import DataError

# Exceptions of numpy for a damaged header, which it parses as a Python literal, and of zipfile for
# a damaged, encrypted or newer archive.
DAMAGED = (
    ValueError, EOFError, KeyError, TypeError, SyntaxError, OverflowError, tokenize.TokenError,
    zipfile.BadZipFile, zlib.error, RuntimeError,
)  # fmt: skip


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

"""The dataset of the last file that a thread read, for formats that are read through xarray.

Readers of meshes and refined grids bring all fields of a file into memory. The variables of a
step lie in one file, which is opened once for all of them.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scitoolkit.io.formats.base import Format

if TYPE_CHECKING:
    import xarray as xr


class _Last(threading.local):
    key: tuple[Any, ...] = ()
    dataset: xr.Dataset | None = None


_last = _Last()


def last_opened(kind: type[Format], path: Path) -> xr.Dataset:
    """Return the decoded dataset of a file, that of the thread's last call if it is unchanged.

    Callers do not close it: the next file closes it.

    Args:
        kind: the format of the file.
        path: of the file.
    """
    key = (os.getpid(), kind.name, str(path), _state(path))
    if _last.dataset is None or _last.key != key:
        before, _last.dataset = _last.dataset, None
        # A handle of the parent process is not closed here: both share its position.
        if before is not None and _last.key[0] == key[0]:
            before.close()
        _last.dataset, _last.key = kind.open_dataset(path), key
    return _last.dataset


def _state(path: Path) -> tuple[int, ...]:
    """Return sizes and times of a file, or of all files of an output that is a folder."""
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
    stats = [file.stat() for file in files]
    return tuple(number for s in stats for number in (s.st_size, s.st_mtime_ns))

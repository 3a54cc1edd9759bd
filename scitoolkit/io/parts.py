"""Long results in numbered parts, so that an interrupted computation can be continued.

Parts are files in a folder next to the output, each written under a temporary name and renamed. A
restarted computation computes the missing parts; the output is assembled from all of them at the
end. A description stored with the parts ensures that they belong to the same computation.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.files import disk_error, replacing, write_atomic
from scitoolkit.core.log import get_logger

Array = np.ndarray
PART_BYTES = 8 << 20
"""Approximate size of a part: the memory of a process, and the work lost by an interruption."""
_ABOUT = "about.json"
log = get_logger(__name__)


class Parts:
    """Parts of one output file.

    Args:
        output: the file to assemble from the parts, which are stored in `OUTPUT.parts`.
        count: number of parts.
        about: inputs of the computation as plain data: model, files, options.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with Parts(folder / "u.nc", 3, {"model": "a"}).opened() as parts:
        ...     parts.save(1, {"u": np.ones(2)})
        >>> with Parts(folder / "u.nc", 3, {"model": "a"}).opened() as parts:
        ...     parts.missing(), parts.load(1)["u"].tolist()
        ([0, 2], [1.0, 1.0])
    """

    def __init__(self, output: Path, count: int, about: Mapping[str, Any]) -> None:
        self.folder: Path = output.with_name(f"{output.name}.parts")
        self.count: int = count
        versions = {p: importlib.metadata.version(p) for p in ("scitoolkit", "torch", "numpy")}
        self._about = json.loads(json.dumps({"parts": count, **versions, **about}, default=str))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Parts]:
        """Context manager that creates the folder, or continues an interrupted computation.

        It is called in one process for all processes that compute. A folder without parts is
        removed at the end.

        Raises:
            DataError: the parts have other inputs, or another process computes them.
            ScitoolkitError: the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise disk_error(error, self.folder) from None
        with lock:
            self._claim(lock)
            try:
                self._compare()
                finished = self.count - len(self.missing())
                if finished:
                    log.info("%d of %d parts exist from an earlier run", finished, self.count)
                yield self
            finally:
                if self.folder.is_dir() and not any(self.folder.glob("[0-9]*.npz")):
                    self.remove()

    def _claim(self, lock: Any) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(
                "another process computes these parts",
                where=str(self.folder),
                fix="wait for it, or write to another file with -o",
            ) from None

    def _compare(self) -> None:
        path = self.folder / _ABOUT
        try:
            about = json.loads(path.read_text())
        except (OSError, ValueError):
            about = None
        if about == self._about:
            return
        if any(self.folder.glob("[0-9]*.npz")):
            other = sorted(
                k
                for k in {*self._about, *(about or {})}
                if self._about.get(k) != (about or {}).get(k)
            )
            raise DataError(
                f"the folder has parts of another result (other {', '.join(other)})",
                where=str(self.folder),
                fix="remove the folder, or write to another file with -o",
            )
        write_atomic(path, json.dumps(self._about, indent=1) + "\n")

    def missing(self) -> list[int]:
        """Return the numbers of the parts that are not computed yet."""
        return [k for k in range(self.count) if not self._path(k).is_file()]

    def save(self, number: int, arrays: Mapping[str, Array]) -> None:
        """Write a part and synchronise it to disk.

        Raises:
            ScitoolkitError: the disk is full, or the folder cannot be written.
        """
        with replacing(self._path(number)) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def load(self, number: int) -> dict[str, Array]:
        """Return the arrays of a part.

        Raises:
            DataError: the part is damaged.
        """
        path = self._path(number)
        try:
            # numpy does not close a file that is not an archive.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return dict(archive.items())
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(
                f"damaged ({error})", where=str(path), fix="remove the file and start again"
            ) from None

    def remove(self) -> None:
        """Remove the folder, once the output is complete."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.npz"


def ranges(count: int, size: int) -> list[range]:
    """Return ranges of at most `size` items that cover `count` items; at least one range.

    Example:
        >>> ranges(5, 2)
        [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(a, min(a + size, count)) for a in range(0, count, size)] or [range(0)]


def by_size(sizes: Sequence[int], most: int) -> list[range]:
    """Return ranges of consecutive items with a total size of at most `most`, or of one item.

    Example:
        >>> by_size([3, 3, 9, 1], 6)
        [range(0, 2), range(2, 3), range(3, 4)]
    """
    edges, total = [0], 0
    for place, size in enumerate(sizes):
        if place > edges[-1] and total + size > most:
            edges.append(place)
            total = 0
        total += size
    return [range(a, b) for a, b in zip(edges, [*edges[1:], len(sizes)], strict=True)]


def identity(path: Path) -> str:
    """Return a hash of names, sizes and modification times of a file, or of a folder's files.

    Raises:
        DataError: the path cannot be read.
    """
    try:
        files = sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path]
        states = [(str(f.relative_to(path)), f.stat()) for f in files]
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path)) from None
    lines = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in states]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()

"""A long result in numbered parts, of which those that were finished outlive the process.

The parts are files in a folder beside the output, each written under a temporary name and renamed.
A computation that was stopped and is started again computes the missing ones; the output is made of
all of them at the end. Whether the parts belong to what is computed now is told by a description
that is kept with them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.run_directory import disk_error, replacing, write_atomic

Array = np.ndarray
PART_BYTES = 8 << 20
"""Bytes of a part, about: what a process holds, and what a stop costs at most."""
_ABOUT = "about.json"
log = get_logger(__name__)


class Parts:
    """The parts of one output file.

    Args:
        output: the file that will be made of them; they are in `OUTPUT.parts` meanwhile.
        count: number of parts.
        about: what they depend on, as plain data: model, files, options.

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
        """Make the folder, or take it over from a computation that was stopped.

        One process does it, for all that compute. A folder without parts is removed at the end.

        Raises:
            DataError: its parts are of something else, or another process computes them.
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
                kept = self.count - len(self.missing())
                if kept:
                    log.info("%d of %d parts are there from an earlier start", kept, self.count)
                yield self
            finally:
                if self.folder.is_dir() and not any(self.folder.glob("[0-9]*.npz")):
                    self.remove()

    def _claim(self, lock: Any) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(
                "another process computes these parts", where=str(self.folder),
                fix="wait for it, or write to another file with -o",
            ) from None  # fmt: skip

    def _compare(self) -> None:
        path = self.folder / _ABOUT
        try:
            found = json.loads(path.read_text())
        except (OSError, ValueError):
            found = None
        if found == self._about:
            return
        if any(self.folder.glob("[0-9]*.npz")):
            other = sorted(
                k for k in {*self._about, *(found or {})}
                if self._about.get(k) != (found or {}).get(k)
            )  # fmt: skip
            raise DataError(
                f"parts of another result (other {', '.join(other)}) are there",
                where=str(self.folder), fix="remove the folder, or write to another file with -o",
            )  # fmt: skip
        write_atomic(path, json.dumps(self._about, indent=1) + "\n")

    def missing(self) -> list[int]:
        """Return the numbers of the parts that are still to be computed."""
        return [k for k in range(self.count) if not self._path(k).is_file()]

    def save(self, number: int, arrays: Mapping[str, Array]) -> None:
        """Write a part, on disk when this returns.

        Raises:
            ScitoolkitError: the disk is full, or the folder cannot be written.
        """
        with replacing(self._path(number)) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())

    def load(self, number: int) -> dict[str, Array]:
        """Return the arrays of a part.

        Raises:
            DataError: it is damaged.
        """
        path = self._path(number)
        try:
            # numpy leaves a file open that is no archive.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
                return dict(found.items())
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(
                f"damaged ({error})", where=str(path), fix="remove the file and start again"
            ) from None

    def remove(self) -> None:
        """Remove the folder, after the output has its name."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.npz"


def ranges(count: int, size: int) -> list[range]:
    """Return ranges of at most `size` that cover 0 to `count`, at least one.

    Example:
        >>> ranges(5, 2)
        [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [range(a, min(a + size, count)) for a in range(0, count, size)] or [range(0)]


def by_size(sizes: Sequence[int], most: int) -> list[range]:
    """Return ranges of consecutive items whose sizes add up to at most `most`, or of one item.

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
    """Return a digest of the names, sizes and times of change of a file, or of a folder's files.

    Raises:
        DataError: it cannot be read.
    """
    try:
        files = sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path]
        found = [(str(f.relative_to(path)), f.stat()) for f in files]
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path)) from None
    lines = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in found]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()

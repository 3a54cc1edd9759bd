"""Files that are complete or absent: written under another name, flushed, and renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from scitoolkit.core.errors import ConfigError, ScitoolkitError, file_named


def temporary_name(path: Path) -> Path:
    """Return the hidden name in the same folder under which this process writes a file.

    Raises:
        ConfigError: the path is a device, pipe or socket, which the file would replace.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ConfigError(
            "a device, pipe or socket, which the output file would replace",
            where=str(path),
            allowed="the name of a regular file",
        )
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def require_place(path: Path) -> None:
    """Check that a file can be written, before long work of which it holds the result.

    Raises:
        ConfigError: the path is a folder, device, pipe or socket, or its folder cannot be written.
    """
    temporary_name(path)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir():
        raise ConfigError("a folder", where=str(path), allowed="the name of a file")
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise ConfigError(
            "cannot be written" if folder.is_dir() else "not a folder",
            where=str(folder),
            fix="choose a folder that can be written",
        )


def write_atomic(path: Path, text: str | bytes) -> None:
    """Write a file under a temporary name, flush it to disk, then rename it into place."""
    data = text.encode() if isinstance(text, str) else text
    temporary = temporary_name(path)
    try:
        with file_named(path, temporary):
            temporary.write_bytes(data)
            move_into_place(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_together(contents: Mapping[Path, str | bytes]) -> None:
    """Write files that belong together: renamed into place only after all of them are on disk.

    Args:
        contents: {path: text or bytes}.

    Raises:
        OSError: a file cannot be written or replaced, or a path is a folder; all files are as they
            were.
    """
    temporaries = {path: temporary_name(path) for path in contents}
    earlier = {path: path.with_name(f"{temporaries[path].name}.old") for path in contents}
    replaced: list[Path] = []
    for path in contents:
        if path.is_dir():  # else found by a rename, when other files have been replaced
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        for path, temporary in temporaries.items():
            data = contents[path]
            with file_named(path, temporary):
                temporary.write_bytes(data.encode() if isinstance(data, str) else data)
                flush_file(temporary)
        for path, copy in earlier.items():
            if path.exists():
                copy.unlink(missing_ok=True)
                shutil.copy2(path, copy, follow_symlinks=False)
        for path, temporary in temporaries.items():
            replaced.append(path)
            temporary.replace(path)
    except BaseException:
        for path in replaced:
            if earlier[path].exists():
                earlier[path].replace(path)
            elif not temporaries[path].exists():  # it is in the place where no file was
                path.unlink(missing_ok=True)
        raise
    finally:
        for path in (*temporaries.values(), *earlier.values()):
            path.unlink(missing_ok=True)


def move_into_place(temporary: Path, path: Path) -> None:
    """Flush a file to disk, then rename it: after a power cut `path` is the old or the new file."""
    flush_file(temporary)
    temporary.replace(path)


def flush_file(path: Path) -> None:
    """Wait until a file, which a library may have written, is on disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def append_lines(path: Path, text: str) -> None:
    """Append whole lines to a file, after the end of a last line that a crash has truncated."""
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            text = text if file.read(1) == b"\n" else f"\n{text}"
        file.write(text.encode())


@contextlib.contextmanager
def making_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder; rename it to `path` at the end, or delete it on failure.

    Args:
        path: a folder that does not exist yet; its parents are made.

    Raises:
        ConfigError: the folder exists.
        ScitoolkitError: the disk is full, or the folder cannot be written.
    """
    taken = ConfigError("already exists", where=str(path), fix="choose another folder")
    if path.exists():
        raise taken
    temporary = temporary_name(path)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another process made it meanwhile
            raise taken from None
        raise disk_error(error, path) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def replacing(path: Path, *also: type[Exception]) -> Iterator[Path]:
    """Yield a temporary name; the file written there is flushed and replaces `path` at the end.

    Args:
        path: file to create or replace; its folder is created.
        also: exceptions of the writer to treat like an `OSError`.

    Raises:
        ScitoolkitError: the disk is full or the folder cannot be written; `path` is unchanged.
    """
    temporary = temporary_name(path)
    failures: tuple[type[Exception], ...] = (OSError, *also)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.chmod(0o644)
        move_into_place(temporary, path)
    except failures as error:
        cause = error if isinstance(error, OSError) else OSError(str(error))
        raise disk_error(cause, path) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def disk_error(error: OSError, path: Path, setting: str = "") -> ScitoolkitError:
    """Return the error for a failed write: disk full, quota, permission.

    Args:
        error: as caught.
        path: the file or folder.
        setting: how the user chooses another folder, such as `RUN_ROOT`.
    """
    by = f" with {setting}" if setting else ""
    return ScitoolkitError(
        f"cannot be written ({error.strerror or error})",
        where=str(path),
        fix=f"free space, or another folder{by}; files saved before are intact",
    )

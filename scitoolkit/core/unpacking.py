"""Archives inside the installed package, unpacked once for all processes of a user."""

from __future__ import annotations

import re
import tarfile
import tempfile
from pathlib import Path


def unpack(archive: Path, folder: Path, members: re.Pattern[str]) -> None:
    """Write the files of a `.tar.xz` to a new folder, whole or not at all.

    Args:
        archive: file of the package.
        folder: its parents are made, readable by the user only. If another process makes the folder
            meanwhile, that one stays.
        members: what names of members must match; no other file is written.

    Raises:
        tarfile.TarError, EOFError, lzma.LZMAError: the archive is damaged or has another member.
        OSError: the folder cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch:
        staged = Path(scratch) / "files"
        staged.mkdir(mode=0o700)
        with tarfile.open(archive, "r:xz") as files:
            for member in files:
                file = files.extractfile(member)
                if file is None or not members.fullmatch(member.name):
                    raise tarfile.ReadError(f"a member named {member.name!r}")
                path = staged / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.read())
        try:
            staged.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise

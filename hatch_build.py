"""Build hook that adds the content's cards and YAML and the prebuilt kernels to a wheel."""

from __future__ import annotations

import hashlib
import json
import re
import sysconfig
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pathspec
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KINDS = ("datasets", "surrogates", "workflows")
CARRIED = {".md", ".yaml", ".sh"}
KERNELS = "scitoolkit/ops/codegen/_prebuilt"
# As in scitoolkit.ops.codegen.prebuilt.
ARCHIVE = "libraries.tar.xz"
CARDS = "cards.tar.xz"  # as in scitoolkit.core.content
DIGESTS = "libraries.sha256"


def archive(files: Sequence[Path], root: Path, target: Path) -> Path:
    """Write files, named relative to a folder, to one archive; the same bytes for the same files.

    Compressed one by one, as a wheel does, the files take more than twice the space.
    """
    with tarfile.open(target, "w:xz", preset=9) as out:
        for file in files:
            member = tarfile.TarInfo(str(file.relative_to(root)))
            member.size = file.stat().st_size
            with file.open("rb") as content:
                out.addfile(member, content)
    return target


class ContentHook(BuildHookInterface[Any]):
    """Hook that adds `scitoolkit/_content` to a wheel; editable installs use the clone's content.

    With the libraries of `prebuild_kernels.py` the wheel is specific to this platform, but not to a
    Python version, because they have a plain C interface.
    """

    scratch: tempfile.TemporaryDirectory[str] | None = None
    """Folder of the files that are made for the wheel, until it is written."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the small files, the manifest of all files, and the kernels if they are compiled."""
        if version == "editable":
            return
        root = Path(self.root)
        self.scratch = tempfile.TemporaryDirectory(prefix="scitoolkit-")
        scratch = Path(self.scratch.name)
        libraries = sorted((root / KERNELS).glob("*/*.so"))
        if libraries:
            packed = archive(libraries, root / KERNELS, scratch / ARCHIVE)
            build_data["force_include"][str(packed)] = f"{KERNELS}/{ARCHIVE}"
            build_data["force_include"][str(root / KERNELS / DIGESTS)] = f"{KERNELS}/{DIGESTS}"
            build_data["pure_python"] = False
            build_data["tag"] = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
        lines = (root / ".gitignore").read_text(encoding="utf-8").splitlines()
        ignored = pathspec.GitIgnoreSpec.from_lines(lines)
        files = sorted(p for kind in KINDS for p in (root / kind).rglob("*") if p.is_file())
        names = [str(p.relative_to(root)) for p in files]
        names = [name for name in names if not ignored.match_file(name)]
        carried = [root / n for n in names if Path(n).suffix in CARRIED]
        # What is in the wheel itself needs no digest, which no compression makes shorter.
        digests = {
            n: "" if root / n in carried else hashlib.sha256((root / n).read_bytes()).hexdigest()
            for n in names
        }
        manifest = scratch / "manifest.json"
        manifest.write_text(json.dumps(digests, indent=0), encoding="utf-8")
        for file in (manifest, archive(carried, root, scratch / CARDS)):
            build_data["force_include"][str(file)] = f"scitoolkit/_content/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the files that were made for the wheel."""
        if self.scratch is not None:
            self.scratch.cleanup()

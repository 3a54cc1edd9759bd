"""A wheel with prebuilt kernels, made in a copy of the clone: `platform_wheel.py FOLDER`.

SCITOOLKIT_WHEEL names one that was made of this clone before: building takes minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("scitoolkit", "datasets", "surrogates", "workflows")
FILES = (
    "pyproject.toml",
    "hatch_build.py",
    "prebuild_kernels.py",
    "README.md",
    "LICENSE",
    ".gitignore",
)


def build(folder: Path) -> Path:
    """Return the wheel, made in a folder; the clone is left as it is."""
    if "SCITOOLKIT_WHEEL" in os.environ:
        return Path(shutil.copy(os.environ["SCITOOLKIT_WHEEL"], folder))
    copy = folder / "clone"
    ignored = shutil.ignore_patterns("__pycache__", "_prebuilt")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for command in (
        ["prebuild_kernels.py"],
        ["-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
    ):
        subprocess.run([sys.executable, *command], cwd=copy, env=environment, check=True)
    shutil.rmtree(copy)
    (wheel,) = folder.glob("*.whl")
    return wheel


if __name__ == "__main__":
    print(build(Path(sys.argv[1]).resolve()))

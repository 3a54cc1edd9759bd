"""Environment of a run: package versions, devices, threads and code revision."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scitoolkit.core.processes import launch_name, world_size

_PACKAGES = ("scitoolkit", "torch", "numpy", "xarray", "h5py", "pydantic")


def package_version(name: str) -> str | None:
    """Return the installed version of a distribution, or None.

    Example:
        >>> package_version("no-such-package") is None
        True
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def environment_report() -> dict[str, Any]:
    """Return versions, devices, threads and the git revision as plain JSON data.

    torch is described only if it is already imported, because importing it takes a second.
    """
    torch = sys.modules.get("torch")
    devices: dict[str, Any] = {"cpu": platform.processor() or platform.machine()}
    if torch is not None:
        devices["torch_threads"] = torch.get_num_threads()
        devices["cuda"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": {name: package_version(name) for name in _PACKAGES},
        "devices": devices,
        "world_size": world_size(),
        "launch": launch_name(),
        "git": git_revision(),
    }


def git_revision() -> str | None:
    """Return the commit of this code's checkout, with `-dirty` if modified, or None."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        out = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return out.stdout.strip()

"""Installing example packages for the time of a test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from scitoolkit.core import plugins


@contextlib.contextmanager
def module_installed(site: Path, name: str, source: str, group: str, member: str) -> Iterator[None]:
    """Install a module of one class as a package, which processes of this one find by `sys.path`.

    Args:
        site: folder to install into, not there yet.
        name: of package, module and entry point.
        source: of the module.
        group: of the entry point.
        member: class in the module.
    """
    about = site / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (site / f"{name}.py").write_text(source)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}:{member}\n")
    sys.path.insert(0, str(site))
    plugins.refresh()
    try:
        yield
    finally:
        sys.path.remove(str(site))
        plugins.refresh()
        sys.modules.pop(name, None)


@contextlib.contextmanager
def installed(package: Path, site: Path) -> Iterator[Path]:
    """Install the package in folder `package` into `site` with pip, without a network.

    Its entry points are seen in this process and in those that it starts.
    """
    source = site / "source"
    shutil.copytree(package, source, ignore=shutil.ignore_patterns("__pycache__"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--disable-pip-version-check",
    ]
    done = subprocess.run(
        [*command, "--target", str(site / "lib"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    path, before = str(site / "lib"), os.environ.get("PYTHONPATH")
    sys.path.insert(0, path)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path, before]))
    plugins.refresh()
    known = set(sys.modules)
    try:
        yield site / "lib"
    finally:
        sys.path.remove(path)
        os.environ["PYTHONPATH"] = before or ""
        if before is None:
            del os.environ["PYTHONPATH"]
        plugins.refresh()
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(path):
                del sys.modules[name]

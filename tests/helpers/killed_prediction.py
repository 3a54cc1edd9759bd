"""`scitoolkit predict` in small parts, killed when a number of them is on disk.

python killed_prediction.py PARTS MODULE:NAME=SIZE ARGUMENTS...: SIZE replaces the constant that
says how large a part is; PARTS 0 kills nothing.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path


def predict(parts: int, size: str, *arguments: object, check: bool = True) -> int:
    """Run it in a separate process, and return the exit code, -9 of a killed one."""
    command = [sys.executable, __file__, str(parts), size, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(done.stderr)
    return done.returncode


def main() -> None:
    """Predict, and kill this process after so many parts."""
    from scitoolkit.cli.main import main as scitoolkit
    from scitoolkit.io.parts import Parts

    most, (place, size) = int(sys.argv[1]), sys.argv[2].split("=")
    module, name = place.split(":")
    setattr(importlib.import_module(module), name, int(size))
    save = Parts.save

    def counted(self: Parts, number: int, arrays: object) -> None:
        save(self, number, arrays)  # type: ignore[arg-type]
        if self.count - len(self.missing()) == most:
            os.kill(os.getpid(), signal.SIGKILL)

    Parts.save = counted  # type: ignore[method-assign]
    scitoolkit(["predict", *sys.argv[3:]])


def leftovers(folder: Path) -> list[str]:
    """Return what a prediction has left in a folder besides files of NetCDF and extxyz."""
    return sorted(p.name for p in folder.iterdir() if p.suffix not in (".nc", ".xyz"))


if __name__ == "__main__":
    main()

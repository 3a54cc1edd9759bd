"""The launcher of MPI programs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest


def require_mpiexec() -> str:
    """Return the path of `mpiexec`, also of this environment's; skip the test without one."""
    pytest.importorskip("mpi4py")
    found = shutil.which("mpiexec") or shutil.which("mpiexec", path=Path(sys.executable).parent)
    if found is None:
        pytest.skip("no mpiexec")
    return str(found)

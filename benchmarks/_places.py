"""Folders of the repository, and how processes find the modules of the benchmarks.

A benchmark is a module of a folder of `DOMAINS`; what several domains use is next to this file.
Modules import each other by name alone, so every folder has to be where Python searches.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent
ROOT = BENCHMARKS.parent
RESULTS = BENCHMARKS / "results"
PEERS = ROOT / ".venv-peers"
HELPERS = ROOT / "tests" / "helpers"
SHARED = Path(os.environ.get("SCITOOLKIT_SHARED", ROOT.parent / "shared"))
DOMAINS = (
    "compression",
    "deploy",
    "emulation",
    "forecasting",
    "generators",
    "gpu",
    "graphs",
    "io",
    "ops",
    "potentials",
    "search",
    "superresolution",
    "training",
    "whole",
)
FOLDERS = (BENCHMARKS, *(BENCHMARKS / domain for domain in DOMAINS))


def importable() -> None:
    """Let this process, and those that it starts, import all modules of the benchmarks."""
    folders = [str(folder) for folder in FOLDERS]
    sys.path[:] = [*folders, *(path for path in sys.path if path not in folders)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *_inherited()])


def environment_of_users() -> dict[str, str]:
    """Return the environment without these folders, which would slow down every import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(_inherited())}


def _inherited() -> list[str]:
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path and Path(path) not in FOLDERS]

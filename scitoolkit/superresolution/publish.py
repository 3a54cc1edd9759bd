"""Make a shipped surrogate of a run: `python -m scitoolkit.superresolution.publish RUN FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from scitoolkit.core import publish as core
from scitoolkit.core.config import load_config
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.job import FIT_RECORD
from scitoolkit.superresolution.surrogate import HEADER, WEIGHTS

TOLERANCE = 0.25
"""Training is chaotic: another processor's sums end in other weights of the same quality."""


def publish(run: Path, destination: Path) -> Path:
    """Copy a finished run's model into `destination`; see `scitoolkit.core.publish`."""
    config = load_config(SuperresolutionConfig, Path(run) / "config.yaml")
    return core.publish(
        run, destination, config, (WEIGHTS, HEADER, FIT_RECORD), tolerance=TOLERANCE,
        command=f"scitoolkit run workflows/{config.workflow}/full.yaml",
    )  # fmt: skip


if __name__ == "__main__":
    print(publish(Path(sys.argv[1]), Path(sys.argv[2])))

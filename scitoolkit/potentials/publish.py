"""Make a shipped potential of a run: `python -m scitoolkit.potentials.publish RUN DESTINATION`."""

from __future__ import annotations

import sys
from pathlib import Path

from scitoolkit.core import publish as core
from scitoolkit.core.config import load_config
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.job import MODEL, WEIGHTS

TOLERANCE = 0.25
"""Training is chaotic: another processor's sums end in other weights of the same quality."""


def publish(run: Path, destination: Path) -> Path:
    """Copy a finished run's model into `destination`; see `scitoolkit.core.publish`."""
    # The model's own configuration has the type map filled in, which a surrogate needs.
    config = load_config(PotentialConfig, Path(run) / MODEL / "config.yaml")
    return core.publish(
        run, destination, config, (WEIGHTS,), tolerance=TOLERANCE,
        command=f"scitoolkit run workflows/{config.workflow}/full.yaml",
    )  # fmt: skip


if __name__ == "__main__":
    print(publish(Path(sys.argv[1]), Path(sys.argv[2])))

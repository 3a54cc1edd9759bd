"""Make a shipped surrogate of a run: `python -m scitoolkit.graphs.publish RUN DESTINATION`."""

from __future__ import annotations

import sys
from pathlib import Path

from scitoolkit.core import publish as core
from scitoolkit.core.config import load_config, read_document
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.job import RECORD, WEIGHTS
from scitoolkit.graphs.mesh_config import MeshConfig

TOLERANCE = 0.25
"""Training is chaotic: another processor's sums end in other weights of the same quality."""


def publish(run: Path, destination: Path) -> Path:
    """Copy a finished run's model into `destination`; see `scitoolkit.core.publish`."""
    path = Path(run) / "config.yaml"
    classes = {"graphs": GraphConfig, "mesh_transport": MeshConfig}
    config = load_config(classes[read_document(path).raw["surrogate"]], path)
    return core.publish(run, destination, config, (WEIGHTS, RECORD), tolerance=TOLERANCE)


if __name__ == "__main__":
    print(publish(Path(sys.argv[1]), Path(sys.argv[2])))

"""Transport on finite-element meshes as a job of the command line and the Python API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.core.job import CHAOTIC, Artifacts
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.graphs.mesh_config import MeshConfig
from scitoolkit.training import TrainingJob


class MeshJob(TrainingJob):
    """Trains on the first trajectories of the file, validates and tests on the last ones."""

    config_class: ClassVar[type[MeshConfig]] = MeshConfig

    def check(self, config: MeshConfig) -> Mapping[str, Any]:
        """Read the meshes, share them, run one batch; write nothing."""
        from scitoolkit.graphs import mesh_pipeline

        return mesh_pipeline.check(config)

    def train(self, config: MeshConfig, run: RunDirectory, *, resume: bool = False) -> None:
        """Train on all processes; save the weights of the lowest validation error in `model/`."""
        from scitoolkit.graphs import mesh_pipeline

        mesh_pipeline.train(config, run, resume=resume)

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Roll out the test trajectories, on each mesh of the file, the unseen ones too.

        A run directory gets results.json and model/metrics.json; with `data` nothing is written
        and all trajectories of that file are rolled out.
        """
        from scitoolkit.graphs import mesh_pipeline

        return mesh_pipeline.evaluate(directory, data)

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Roll out every trajectory of a file from its first state; nodes of all meshes in turn."""
        from scitoolkit.graphs import mesh_pipeline

        mesh_pipeline.predict(directory, source, output)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the whole model folder; a repetition on another processor ends elsewhere."""
        del directory
        return Artifacts(tolerance=CHAOTIC)

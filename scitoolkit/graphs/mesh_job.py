"""Transport on finite-element meshes as a job of the command line and the Python API."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from scitoolkit.core.job import CHAOTIC, Artifacts, PipelineJob
from scitoolkit.core.traced import TracedFunction
from scitoolkit.graphs.mesh_config import MeshConfig
from scitoolkit.training import TrainingJob


class MeshJob(PipelineJob, TrainingJob):
    """Trains on the first trajectories of the file, validates and tests on the last ones."""

    config_class: ClassVar[type[MeshConfig]] = MeshConfig
    pipeline_name: ClassVar[str] = "scitoolkit.graphs.mesh_pipeline"
    predicts_on_ranks: ClassVar[bool] = True

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the scheme's coefficients and its step, which `deploy` writes as C."""
        from scitoolkit.graphs import mesh_pipeline

        return mesh_pipeline.traced(directory)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the whole model folder; a repetition on another processor ends elsewhere."""
        del directory
        return Artifacts(tolerance=CHAOTIC)

"""Transport on finite-element meshes as a job of the command line and the Python API."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import CHAOTIC, Artifacts, PipelineJob
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.traced import TracedFunction
from scitoolkit.graphs.mesh_config import MeshConfig
from scitoolkit.training import TrainingJob


class MeshJob(PipelineJob, TrainingJob):
    """Trains on the first trajectories of the file, validates and tests on the last ones."""

    config_class: ClassVar[type[MeshConfig]] = MeshConfig
    pipeline_name: ClassVar[str] = "scitoolkit.graphs.mesh_pipeline"

    def check_divisible(self, directory: Path, command: str, steps: int | None = None) -> None:
        """Refuse evaluations: a prediction divides its meshes, the comparison of schemes not."""
        if command != "predict":
            raise ConfigError(
                f"several processes, and {command} of a scheme on meshes runs in one",
                where=str(directory), allowed="predict", fix="leave --nproc out",
            )  # fmt: skip

    @contextlib.contextmanager
    def joined(self, directory: Path) -> Iterator[None]:
        """Join the other processes, each of which then advances a part of the meshes."""
        from scitoolkit.training.processes import process_group

        with process_group(ModelFolder(directory).config(self.config_class).training):
            yield

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the scheme's coefficients and its step, which `deploy` writes as C."""
        from scitoolkit.graphs import mesh_pipeline

        return mesh_pipeline.traced(directory)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the whole model folder; a repetition on another processor ends elsewhere."""
        del directory
        return Artifacts(tolerance=CHAOTIC)

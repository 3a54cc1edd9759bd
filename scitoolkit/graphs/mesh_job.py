"""Transport on finite-element meshes as a job of the command line and the Python API."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import CHAOTIC, Artifacts
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.graphs.mesh_config import MeshConfig
from scitoolkit.surrogate import StagesAt, SurrogateJob


class MeshJob(SurrogateJob):
    """Job that trains on the first trajectories of the file and validates and tests on the last."""

    config_class: ClassVar[type[MeshConfig]] = MeshConfig
    stages = StagesAt("scitoolkit.graphs.mesh_stages:MeshStages")
    data_stages = StagesAt("scitoolkit.graphs.mesh_files:MeshFiles")

    def check_divisible(self, directory: Path, command: str, steps: int | None = None) -> None:
        """Raise ConfigError unless `command` is predict, which runs on several processes."""
        if command != "predict":
            raise ConfigError(
                f"{command} on meshes runs in one process only",
                where=str(directory),
                allowed="predict",
                fix="leave --nproc out",
            )

    @contextlib.contextmanager
    def joined(self, directory: Path) -> Iterator[None]:
        """Join the process group; each process then advances a part of the meshes."""
        from scitoolkit.training.processes import process_group

        with process_group(ModelFolder(directory).config(self.config_class).training):
            yield

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the model folder; results on other hardware may diverge (chaotic tolerance)."""
        del directory
        return Artifacts(tolerance=CHAOTIC)

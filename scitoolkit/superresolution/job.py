"""The super-resolution job, used by the command line and the Python API."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import CHAOTIC, Artifacts
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.surrogate import StagesAt, SurrogateJob


class SuperresolutionJob(SurrogateJob):
    """Training, evaluation and prediction of continuous super-resolution."""

    config_class: ClassVar[type[SuperresolutionConfig]] = SuperresolutionConfig
    stages = StagesAt("scitoolkit.superresolution.stages:SuperresolutionStages")
    task: ClassVar[str] = "superres"
    starter_name: ClassVar[str] = "scitoolkit.superresolution.starter:starter"

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Refine a coarse file to the resolution of the training."""
        from scitoolkit.superresolution.stages import predict_file

        predict_file(directory, source, output)

    def check_divisible(self, directory: Path, command: str, steps: int | None = None) -> None:
        """Check that a command can use several processes, as predictions can.

        Raises:
            ConfigError: another command.
        """
        if command != "predict":
            raise ConfigError(
                f"several processes, but {command} of super-resolution runs in one",
                where=str(directory),
                allowed="predict",
                fix="leave --nproc out",
            )

    def joined(self, directory: Path) -> AbstractContextManager[None]:
        """Join the other processes, which compute blocks of the grid."""
        from scitoolkit.training.ranks.rounds import joined_to_share

        return joined_to_share()

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the files to publish; repeated trainings differ between processors."""
        del directory
        return Artifacts(workflow_file="full.yaml", tolerance=CHAOTIC)

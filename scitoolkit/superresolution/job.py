"""The super-resolution job, used by the command line and the Python API."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import CHAOTIC, Artifacts, Finding, PipelineJob
from scitoolkit.core.traced import TracedFunction
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.training import TrainingJob


class SuperresolutionJob(PipelineJob, TrainingJob):
    """Training, evaluation and prediction of continuous super-resolution."""

    config_class: ClassVar[type[SuperresolutionConfig]] = SuperresolutionConfig
    pipeline_name: ClassVar[str] = "scitoolkit.superresolution.pipeline"
    task: ClassVar[str] = "superres"
    starter_name: ClassVar[str] = "scitoolkit.superresolution.starter:starter"

    def validate(self, config: SuperresolutionConfig) -> Sequence[Finding]:
        """Check the equations on the training data."""
        if not config.pde.equations:
            return super().validate(config)
        from scitoolkit.superresolution import pipeline

        return [*super().validate(config), *pipeline.validate(config)]

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

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the surrogate as functions of arrays for export to C."""
        from scitoolkit.superresolution.traced import traced

        return traced(directory)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the files to publish; repeated trainings differ between processors."""
        del directory
        return Artifacts(workflow_file="full.yaml", tolerance=CHAOTIC)

"""The super-resolution job: what the command line and a Python user call."""

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
    """Continuous super-resolution of simulations."""

    config_class: ClassVar[type[SuperresolutionConfig]] = SuperresolutionConfig
    pipeline_name: ClassVar[str] = "scitoolkit.superresolution.pipeline"
    task: ClassVar[str] = "superres"
    starter_name: ClassVar[str] = "scitoolkit.superresolution.starter:starter"

    def validate(self, config: SuperresolutionConfig) -> Sequence[Finding]:
        """Return the residual of the true data in every equation."""
        if not config.pde.equations:
            return super().validate(config)
        from scitoolkit.superresolution import pipeline

        return [*super().validate(config), *pipeline.validate(config)]

    def check_divisible(self, directory: Path, command: str, steps: int | None = None) -> None:
        """Refuse evaluations: a prediction divides the points of its grid, the comparison not."""
        if command != "predict":
            raise ConfigError(
                f"several processes, and {command} of a super-resolution runs in one",
                where=str(directory), allowed="predict", fix="leave --nproc out",
            )  # fmt: skip

    def joined(self, directory: Path) -> AbstractContextManager[None]:
        """Join the other processes, each of which then computes blocks of the grid."""
        from scitoolkit.training.ranks.rounds import joined_to_share

        return joined_to_share()

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the surrogate as functions of arrays, which `deploy` writes as C."""
        from scitoolkit.superresolution.traced import traced

        return traced(directory)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the whole model folder; a repetition on another processor ends elsewhere."""
        del directory
        return Artifacts(workflow_file="full.yaml", tolerance=CHAOTIC)

"""The super-resolution job: what the command line and a Python user call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.core.job import CHAOTIC, Artifacts, Finding
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.starter import DataToStart
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.training import TrainingJob


class SuperresolutionJob(TrainingJob):
    """Continuous super-resolution of simulations."""

    config_class: ClassVar[type[SuperresolutionConfig]] = SuperresolutionConfig
    task: ClassVar[str] = "superres"

    def validate(self, config: SuperresolutionConfig) -> Sequence[Finding]:
        """Return the residual of the true data in every equation."""
        if not config.pde.equations:
            return super().validate(config)
        from scitoolkit.superresolution import pipeline

        return [*super().validate(config), *pipeline.validate(config)]

    def starter(self, data: DataToStart) -> str:
        """Return a short commented configuration for some data."""
        from scitoolkit.superresolution.starter import starter

        return starter(data)

    def check(self, config: SuperresolutionConfig) -> Mapping[str, Any]:
        """Open the data, check the equations on it, run one batch; write nothing."""
        from scitoolkit.superresolution import pipeline

        return pipeline.check(config)

    def train(
        self, config: SuperresolutionConfig, run: RunDirectory, *, resume: bool = False
    ) -> None:
        """Train on random crops and save `model/`."""
        from scitoolkit.superresolution import pipeline

        pipeline.train(config, run, resume=resume)

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Compare with the truth, on the configured test file or another one."""
        from scitoolkit.superresolution import pipeline

        return pipeline.evaluate(directory, data)

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Refine a coarse file as finely as the model was trained to; stream to `output`."""
        from scitoolkit.superresolution import pipeline

        pipeline.predict(directory, source, output)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the whole model folder; a repetition on another processor ends elsewhere."""
        del directory
        return Artifacts(workflow_file="full.yaml", tolerance=CHAOTIC)

"""The emulation job: what the command line, a search and a Python user call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import CHAOTIC, Artifacts, Finding, PipelineJob
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.traced import TracedFunction
from scitoolkit.emulation.config import EmulationConfig, ExportOptions
from scitoolkit.training import TrainingJob


class EmulationJob(PipelineJob, TrainingJob):
    """Emulators of named variables."""

    config_class: ClassVar[type[EmulationConfig]] = EmulationConfig
    pipeline_name: ClassVar[str] = "scitoolkit.emulation.pipeline"
    export_options: ClassVar[type[ExportOptions]] = ExportOptions
    task: ClassVar[str] = "emulate"
    starter_name: ClassVar[str] = "scitoolkit.emulation.starter:starter"

    def validate(self, config: EmulationConfig) -> Sequence[Finding]:
        """Return what the data say of the guards and boundaries, and which invariants hold."""
        if config.data.generator is not None:
            return super().validate(config)  # the schema checked its settings; no data yet

        from scitoolkit.emulation import pipeline

        return [*super().validate(config), *pipeline.validate(config)]

    def predict_steps(
        self, directory: Path, source: Path, output: Path, steps: int | None, lead: int | None
    ) -> None:
        """Go `steps` steps beyond the last sample of a file; 0 maps every sample instead."""
        from scitoolkit.emulation import pipeline

        pipeline.predict(directory, source, output, steps, lead)

    def check_divisible(self, directory: Path, command: str, steps: int | None = None) -> None:
        """Refuse what needs fields divided in space of emulators that are not of `spatial`.

        A map of every sample divides the samples; evaluations and rollouts need `spatial`.
        """
        from scitoolkit.emulation import pipeline

        config = ModelFolder(directory).config(self.config_class)
        if config.training.divides_fields:
            return
        if command == "predict" and not pipeline.rolls(directory, steps):
            return
        what, other = command, ""
        if command == "predict":
            what, other = "a rollout", "; --steps 0, which maps every sample"
        raise ConfigError(
            f"{what} by several processes, and training.strategy {config.training.strategy}",
            where=str(directory), allowed=f"spatial, which divides fields{other}",
            fix="one process: leave --nproc out",
        )  # fmt: skip

    @contextlib.contextmanager
    def joined(self, directory: Path) -> Iterator[None]:
        """Join the other processes, which then compute slabs of the fields, or samples each."""
        from scitoolkit.training.processes import process_group
        from scitoolkit.training.ranks.rounds import joined_to_share

        training = ModelFolder(directory).config(self.config_class).training
        with process_group(training) if training.divides_fields else joined_to_share():
            yield

    def export(self, directory: Path, output: Path, options: ExportOptions) -> Mapping[str, Any]:
        """Write a compiled `.pt2`, or `.onnx`, and compare it with the emulator."""
        from scitoolkit.emulation import pipeline

        return pipeline.export(directory, output, options.batch)

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the surrogate as functions of arrays, which `deploy` writes as C."""
        from scitoolkit.emulation.traced import traced

        return traced(directory)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the whole model folder; a repetition on another processor ends elsewhere."""
        del directory
        return Artifacts(workflow_file="full.yaml", tolerance=CHAOTIC)

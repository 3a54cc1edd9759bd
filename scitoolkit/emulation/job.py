"""The emulation job, used by the command line, searches and the Python API."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import CHAOTIC, Artifacts, Finding
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.traced import TracedFunction
from scitoolkit.emulation.config import EmulationConfig, ExportOptions
from scitoolkit.surrogate import StagesAt, SurrogateJob
from scitoolkit.training import TrainingJob

if TYPE_CHECKING:
    from scitoolkit.surrogate import Trained


class EmulationJob(SurrogateJob):
    """Training, evaluation, prediction and export of emulators."""

    config_class: ClassVar[type[EmulationConfig]] = EmulationConfig
    stages = StagesAt("scitoolkit.emulation.stages:EmulationStages")
    export_options: ClassVar[type[ExportOptions]] = ExportOptions
    task: ClassVar[str] = "emulate"
    starter_name: ClassVar[str] = "scitoolkit.emulation.starter:starter"

    def validate(self, config: EmulationConfig) -> Sequence[Finding]:
        """Check guards and boundaries against the data, and propose further invariants."""
        if config.data.generator is not None:
            return TrainingJob.validate(self, config)  # the schema checked it; no data yet
        return super().validate(config)

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Apply the emulator to a file: `rollout.predict` steps, or a map of every sample."""
        self.predict_steps(directory, source, output, None, None)

    def predict_steps(
        self,
        directory: Path,
        source: Path,
        output: Path,
        steps: int | None,
        lead: int | None,
        forcing: Path | None = None,
        times: str | None = None,
    ) -> None:
        """Predict `steps` steps after the last sample of a file; with 0, map every sample."""
        from scitoolkit.emulation.prediction import predict_file

        predict_file(self._trained(directory), source, output, steps, lead, forcing, times)

    def _trained(self, directory: Path) -> Trained:
        from scitoolkit.surrogate import load

        return load(self.stages, self.config_class, directory)

    def check_divisible(self, directory: Path, command: str, steps: int | None = None) -> None:
        """Check that a command can use several processes.

        A map of every sample divides the samples; evaluations and rollouts need the strategy
        `spatial`, which divides the fields.

        Raises:
            ConfigError: an evaluation or rollout of an emulator of another strategy.
        """
        from scitoolkit.emulation.prediction import is_rolled

        config = ModelFolder(directory).config(self.config_class)
        if config.training.divides_fields:
            return
        if command == "predict":
            layout = self._trained(directory).model.layout
            if not is_rolled(config, layout, steps):
                return
        what, other = command, ""
        if command == "predict":
            what, other = "a rollout", "; --steps 0, which maps every sample"
        raise ConfigError(
            f"{what} by several processes, and training.strategy {config.training.strategy}",
            where=str(directory),
            allowed=f"spatial, which divides fields{other}",
            fix="one process: leave --nproc out",
        )

    @contextlib.contextmanager
    def joined(self, directory: Path) -> Iterator[None]:
        """Join the other processes, which compute slabs of the fields or a share of the samples."""
        from scitoolkit.training.processes import process_group
        from scitoolkit.training.ranks.rounds import joined_to_share

        training = ModelFolder(directory).config(self.config_class).training
        with process_group(training) if training.divides_fields else joined_to_share():
            yield

    def export(self, directory: Path, output: Path, options: ExportOptions) -> Mapping[str, Any]:
        """Export to a compiled `.pt2` or to `.onnx` and compare the result with the emulator."""
        from scitoolkit.emulation.export import export
        from scitoolkit.emulation.traced import single

        return export(single(self._trained(directory)), Path(output), options.batch)

    def traced(self, directory: Path) -> Sequence[TracedFunction]:
        """Return the surrogate as functions of arrays for export to C."""
        from scitoolkit.emulation.traced import traced

        return traced(self._trained(directory))

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the files to publish; repeated trainings differ between processors."""
        del directory
        return Artifacts(workflow_file="full.yaml", tolerance=CHAOTIC)

"""Job of the domain `potentials`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import CHAOTIC, Artifacts, Finding
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.io.atoms import check_label_names
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.export.options import LibraryOptions
from scitoolkit.potentials.start_config import started_model
from scitoolkit.surrogate import StagesAt, SurrogateJob
from scitoolkit.training import TrainingJob


class PotentialJob(SurrogateJob):
    """Training, evaluation, prediction and export of interatomic potentials."""

    config_class: ClassVar[type[PotentialConfig]] = PotentialConfig
    stages = StagesAt("scitoolkit.potentials.stages:PotentialStages")
    export_options: ClassVar[type[LibraryOptions]] = LibraryOptions
    task: ClassVar[str] = "potential"
    starter_name: ClassVar[str] = "scitoolkit.potentials.starter:starter"

    def validate(self, config: PotentialConfig) -> Sequence[Finding]:
        """Refuse label names that occur in no file of the configuration, and unreadable weights.

        Facts of frames need all of them: they are read by the training, and by a dry run.
        """
        check_label_names(config.data.files, config.data.labels)
        # Weights whose settings can be read are not loaded: that would import torch.
        if config.start and started_model(config.start.model_dump(mode="json")) is None:
            from scitoolkit.potentials.fine_tuning import source_model

            source_model(config.start)
        return TrainingJob.validate(self, config)

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Write energies, forces and virials of the configurations of a file as .nc or .xyz."""
        from scitoolkit.potentials.stages import predict_file

        predict_file(directory, source, output)

    def check_divisible(self, directory: Path, command: str, steps: int | None = None) -> None:
        """Refuse several processes for commands other than `predict`."""
        if command != "predict":
            raise ConfigError(
                f"{command} of a potential runs in one process",
                where=str(directory),
                allowed="predict",
                fix="leave --nproc out",
            )

    def joined(self, directory: Path) -> AbstractContextManager[None]:
        """Join the other processes, which divide the configurations of a prediction."""
        from scitoolkit.training.ranks.rounds import joined_to_share

        return joined_to_share()

    def export(self, directory: Path, output: Path, options: LibraryOptions) -> Mapping[str, Any]:
        """Write, compile and check the C library of a model; see `potentials.export`."""
        from scitoolkit.potentials.export.write import export_library
        from scitoolkit.potentials.saved import load_model

        model, config, _ = load_model(directory, options.precision)
        if options.compress:
            model.compress()
        return export_library(model, config.model, Path(output))

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the weights and the saved configuration, whose type map is filled in."""
        config = load_config(PotentialConfig, ModelFolder(directory).path / "config.yaml")
        return Artifacts(config=config, workflow_file="full.yaml", tolerance=CHAOTIC)

"""The job of interatomic potentials, called by the command line, a search or from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.core.config import load_config
from scitoolkit.core.job import CHAOTIC, Artifacts, Finding
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.starter import DataToStart
from scitoolkit.io.atoms import check_label_names
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.export.options import LibraryOptions
from scitoolkit.training import TrainingJob


class PotentialJob(TrainingJob):
    """Interatomic potentials."""

    config_class: ClassVar[type[PotentialConfig]] = PotentialConfig
    export_options: ClassVar[type[LibraryOptions]] = LibraryOptions
    task: ClassVar[str] = "potential"

    def starter(self, data: DataToStart) -> str:
        """Return a short commented configuration for some data."""
        from scitoolkit.potentials.starter import starter

        return starter(data)

    def validate(self, config: PotentialConfig) -> Sequence[Finding]:
        """Refuse names of labels that no file of the configuration has."""
        check_label_names(config.data.files, config.data.labels)
        return super().validate(config)

    def check(self, config: PotentialConfig) -> Mapping[str, Any]:
        """Open the data, build the model, run one batch; write nothing."""
        from scitoolkit.potentials import pipeline

        return pipeline.check(config)

    def train(self, config: PotentialConfig, run: RunDirectory, *, resume: bool = False) -> None:
        """Measure statistics, train, save the weights of the least validation loss in `model/`."""
        from scitoolkit.potentials import pipeline

        pipeline.train(config, run, resume=resume)

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Evaluate on the run's own test part, or on any labelled file of atoms.

        A run directory gets results.json and model/metrics.json; with `data` nothing is written.
        """
        from scitoolkit.potentials import pipeline

        return pipeline.evaluate(directory, data)

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Write energies and forces of a file's configurations, as .nc (xarray) or .xyz (ASE)."""
        from scitoolkit.potentials import pipeline

        pipeline.predict(directory, source, output)

    def export(self, directory: Path, output: Path, options: LibraryOptions) -> Mapping[str, Any]:
        """Write, compile and check the C library of a model; see `potentials.export`."""
        from scitoolkit.potentials import pipeline

        return pipeline.export(directory, output, options)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return weights and the model's own configuration, which has the type map filled in."""
        config = load_config(PotentialConfig, ModelFolder(directory).path / "config.yaml")
        return Artifacts(config=config, workflow_file="full.yaml", tolerance=CHAOTIC)

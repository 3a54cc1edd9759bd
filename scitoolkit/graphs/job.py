"""Classification of the nodes of a graph as a job of the command line and the Python API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.core.job import CHAOTIC, Artifacts
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.training import TrainingJob


class GraphJob(TrainingJob):
    """Trains on the part `train`, stops by `validation`, tests on `test`."""

    config_class: ClassVar[type[GraphConfig]] = GraphConfig

    def check(self, config: GraphConfig) -> Mapping[str, Any]:
        """Read the graph, share it, run one batch; write nothing."""
        from scitoolkit.graphs import pipeline

        return pipeline.check(config)

    def train(self, config: GraphConfig, run: RunDirectory, *, resume: bool = False) -> None:
        """Train on all processes; save the weights of the lowest validation loss in `model/`."""
        from scitoolkit.graphs import pipeline

        pipeline.train(config, run, resume=resume)

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Evaluate on the test part of the run's own graph, or of another file's.

        A run directory gets results.json and model/metrics.json; with `data` nothing is written.
        """
        from scitoolkit.graphs import pipeline

        return pipeline.evaluate(directory, data)

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Write class and probabilities of every node of a graph, as a file that xarray opens."""
        from scitoolkit.graphs import pipeline

        pipeline.predict(directory, source, output)

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the whole model folder; a repetition on another processor ends elsewhere."""
        del directory
        return Artifacts(tolerance=CHAOTIC)

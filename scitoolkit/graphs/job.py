"""Node prediction on a graph as a job of the command line and the Python API."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from scitoolkit.core.job import CHAOTIC, Artifacts
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.surrogate import StagesAt, SurrogateJob


class GraphJob(SurrogateJob):
    """Job that trains on the part `train`, selects by `validation` and tests on `test`."""

    config_class: ClassVar[type[GraphConfig]] = GraphConfig
    stages = StagesAt("scitoolkit.graphs.stages:GraphStages")
    data_stages = StagesAt("scitoolkit.graphs.node_data:NodeData")
    task: ClassVar[str] = "graph"
    starter_name: ClassVar[str] = "scitoolkit.graphs.starter:starter"

    def artifacts(self, directory: Path) -> Artifacts:
        """Return the model folder; results on other hardware may diverge (chaotic tolerance)."""
        del directory
        return Artifacts(tolerance=CHAOTIC)

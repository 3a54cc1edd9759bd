"""Link prediction as a job of the command line and the Python API."""

from __future__ import annotations

from typing import ClassVar

from scitoolkit.core.starter import DataToStart, Lines
from scitoolkit.graphs.link_config import LinkConfig
from scitoolkit.surrogate.job import StagesAt, SurrogateJob


class LinkJob(SurrogateJob):
    """Job that learns which pairs of nodes have an edge, and scores other pairs."""

    config_class: ClassVar[type[LinkConfig]] = LinkConfig
    stages = StagesAt("scitoolkit.graphs.link_stages:LinkStages")

    def starter(self, data: DataToStart) -> str:
        """Return a short commented configuration that runs unchanged."""
        lines = Lines(
            "Edges of a graph: a share is hidden and has to be told from pairs without one."
        )
        lines.key("domain", "graph_links")
        lines.section("data", path=str(data.written[0]))
        lines.section("split", validation=0.05, test=0.1)
        lines.section("model", name="gcn", hidden=64, dropout=0.0)
        lines.key("negatives", 1, "pairs without an edge for each edge, drawn in each epoch")
        optimizer = {"name": "adam", "lr": 0.01}
        lines.section("training", epochs=50, batch_size=4096, optimizer=optimizer)
        return lines.text()

"""The configuration of a graph job."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt, model_validator

from scitoolkit.core.config import Config, DataPath, refuse_unused
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.core.processes import world_size
from scitoolkit.graphs.models import GCN, AnyModel
from scitoolkit.graphs.strategy import GraphTrainingConfig
from scitoolkit.graphs.targets import TargetName


class GraphDataConfig(Config):
    """Which graph.

    Attributes:
        path: an npz file, as `scitoolkit.graphs.graph.read_graph` describes.
        normalise: `rows` divides each node's features by their sum, as is usual for bags of
            words; `standard` takes off the mean and divides by the deviation of the training
            nodes; `none`.
        edge_inputs: `use` gives the file's `edge_weight` and `edge_attr` to the model, and refuses
            a model that does not accept them; `ignore` trains without them.
        target: what the file's `y` holds: `classes`, (N,); `labels`, several at once, (N, L) of 0
            and 1; `values`, (N,) or (N, D), learned in units of their deviation.
    """

    path: DataPath
    normalise: Literal["none", "rows", "standard"] = "none"
    edge_inputs: Literal["use", "ignore"] = "use"
    target: TargetName = "classes"


class PartitionConfig(Config):
    """How processes share the graph.

    Attributes:
        algorithm: `auto` takes the grid whose busiest process receives least.
        replication: c of 1.5d.
        sparse: send only rows that are needed.
        partition: `metis`, `random` or `block`.
        owner: an .npy file with the rank of each node instead.
    """

    algorithm: Literal["auto", "1d", "1.5d", "2d", "3d"] = "1d"
    replication: PositiveInt = 2
    sparse: bool = True
    partition: Literal["metis", "random", "block"] = "metis"
    owner: DataPath | None = None

    def required_packages(self) -> tuple[str, ...]:
        """Return pymetis where it divides the graph among several processes."""
        asked = self.partition == "metis" and self.owner is None
        return ("pymetis",) if asked and world_size() > 1 else ()

    @model_validator(mode="after")
    def _read(self) -> PartitionConfig:
        if self.owner is not None:
            refuse_unused(self, "owner", "partition")
        if self.algorithm != "1.5d":
            refuse_unused(self, f"algorithm: {self.algorithm}", "replication")
        return self


class GraphConfig(SeededConfig):
    """A graph job: the graph, how it is shared, the model and its training."""

    domain: Literal["graphs"] = "graphs"
    data: GraphDataConfig
    graph: PartitionConfig = PartitionConfig()
    model: AnyModel = GCN()
    training: GraphTrainingConfig = GraphTrainingConfig(epochs=200)

"""Configuration of a graph job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from scitoolkit.core.config import Config, DataPath, refuse_unused
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.core.processes import world_size
from scitoolkit.graphs.models import GCN, AnyModel
from scitoolkit.graphs.strategy import GraphTrainingConfig
from scitoolkit.graphs.targets import TargetName
from scitoolkit.surrogate.config import TrainedStart

ClassWeight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GraphDataConfig(Config):
    """The graph and its preprocessing.

    Attributes:
        path: a file as described by `scitoolkit.graphs.graph.read_graph`, or the folder of a
            partitioned graph.
        normalise: `rows` divides each node's features by their sum, as is usual for bags of
            words; `standard` subtracts the mean and divides by the standard deviation of the
            training nodes; `none`.
        edge_inputs: `use` passes the file's `edge_weight`, `edge_attr`, `edge_type`, `node_type`
            and `pos` to the model, which must accept them; `ignore` trains without them.
        target: meaning of the file's `y`: `classes`, (N,); `labels`, (N, L) of 0
            and 1; `values`, (N,) or (N, D), standardised for training.
        split: column of the masks of a file with several splits, of shape (N, splits).
        class_weights: factor of each class in the loss, for classes of unequal size: `balanced` is
            the mean number of training nodes of a class over that of this class; a list holds one
            number for each class; None weighs all nodes equally.
        allow_suspect: accept features and weights that look like marks of missing values.
    """

    path: DataPath
    normalise: Literal["none", "rows", "standard"] = "none"
    edge_inputs: Literal["use", "ignore"] = "use"
    target: TargetName = "classes"
    split: NonNegativeInt | None = None
    class_weights: Literal["balanced"] | tuple[ClassWeight, ...] | None = None
    allow_suspect: bool = False

    @model_validator(mode="after")
    def _weighs_classes(self) -> GraphDataConfig:
        if self.target != "classes":
            refuse_unused(self, f"target: {self.target}", "class_weights")
        return self


class PartitionConfig(Config):
    """Distribution of the graph over processes.

    Attributes:
        algorithm: `auto` selects the grid that minimises the largest number of words received by
            a process.
        replication: c of 1.5d.
        sparse: send only the rows that the receiver needs.
        partition: `metis`, `random` (depends on `seed`) or `block`.
        owner: an .npy file with the rank of each node, instead of `partition`.
    """

    algorithm: Literal["auto", "1d", "1.5d", "2d", "3d"] = "1d"
    replication: PositiveInt = 2
    sparse: bool = True
    partition: Literal["metis", "random", "block"] = "metis"
    owner: DataPath | None = None

    def required_packages(self) -> tuple[str, ...]:
        """Return pymetis if it partitions the graph for several processes."""
        asked = self.partition == "metis" and self.owner is None
        return ("pymetis",) if asked and world_size() > 1 else ()

    @model_validator(mode="after")
    def _read(self) -> PartitionConfig:
        if self.owner is not None:
            refuse_unused(self, "owner", "partition")
        if self.algorithm != "1.5d":
            refuse_unused(self, f"algorithm: {self.algorithm}", "replication")
        return self


class SamplingConfig(Config):
    """Training on sampled neighbourhoods instead of the whole graph at once.

    Attributes:
        neighbours: how many neighbours are sampled for each node, from the batch outwards: one
            number for each layer of the model; -1 for all. `training.batch_size` counts the nodes
            of a batch.
    """

    neighbours: tuple[int, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _samples(self) -> SamplingConfig:
        if any(count < 1 and count != -1 for count in self.neighbours):
            raise ValueError("neighbours: numbers from 1, or -1 for all neighbours")
        return self


class NetworksConfig(SeededConfig):
    """Base of configurations of graph networks.

    Attributes:
        members: number of networks, which differ in their seeds and whose mean is the prediction.
        weights_dtype: type in which weights are stored.
        start: trained weights to start from, instead of random ones.
    """

    members: PositiveInt = 1
    weights_dtype: Literal["float32", "float16", "int8"] = "float32"
    start: TrainedStart | None = None


class GraphConfig(NetworksConfig):
    """Configuration of a graph job: graph, partition, model and training.

    Attributes:
        sampling: how neighbours are sampled; None trains on the whole graph.
    """

    domain: Literal["graphs"] = "graphs"
    data: GraphDataConfig
    graph: PartitionConfig = PartitionConfig()
    model: AnyModel = GCN()
    sampling: SamplingConfig | None = None
    training: GraphTrainingConfig = GraphTrainingConfig(epochs=200)

    @model_validator(mode="after")
    def _divides_or_samples(self) -> GraphConfig:
        if self.sampling is not None:
            refuse_unused(self, "sampling, which one process does", "graph")
        return self

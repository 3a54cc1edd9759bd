"""Configuration of link prediction."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from scitoolkit.core.config import Config, DataPath
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.graphs.graph_set_config import GraphShares
from scitoolkit.graphs.models import GCN, AnyModel
from scitoolkit.surrogate.config import TrainedStart
from scitoolkit.training import TrainingConfig


class LinkDataConfig(Config):
    """The graph whose edges are learned.

    Attributes:
        path: a file as described by `scitoolkit.graphs.graph.read_graph`.
        edge_inputs: `use` passes what the file has besides features and edges to the model, which
            must accept it; `ignore` trains without.
    """

    path: DataPath
    edge_inputs: Literal["use", "ignore"] = "use"


class LinkConfig(SeededConfig):
    """Configuration of link prediction: graph, network, pairs that are no edges, and training.

    Attributes:
        split: shares of the edges for validation and test, of which no message tells.
        model: the network over the nodes.
        width: number of components of a node, whose products with another's are the score of an
            edge; an even number.
        negatives: pairs without an edge that are drawn for each edge in each epoch.
        members: number of networks, which differ in their seeds and whose mean is the prediction.
        weights_dtype: type in which weights are stored.
        start: trained weights to start from, instead of random ones.
        training: `batch_size` counts edges; each batch computes the whole graph once.
    """

    domain: Literal["graph_links"] = "graph_links"
    data: LinkDataConfig
    split: GraphShares = GraphShares(validation=0.05, test=0.1)
    model: AnyModel = GCN(hidden=64, dropout=0)
    width: int = Field(default=64, gt=0, multiple_of=2)
    negatives: PositiveInt = 1
    members: PositiveInt = 1
    weights_dtype: Literal["float32", "float16", "int8"] = "float32"
    start: TrainedStart | None = None
    training: TrainingConfig = TrainingConfig(epochs=50, batch_size=4096)

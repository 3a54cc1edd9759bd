"""Configuration of link prediction."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from scitoolkit.core.config import Config, DataPath
from scitoolkit.graphs.config import NetworksConfig
from scitoolkit.graphs.graph_set_config import GraphShares
from scitoolkit.graphs.models import GCN, AnyModel
from scitoolkit.training import TrainingConfig


class LinkDataConfig(Config):
    """The graph whose edges are learned.

    Attributes:
        path: a file as described by `scitoolkit.graphs.graph.read_graph`.
        edge_inputs: `use` passes what the file has besides features and edges to the model, which
            must accept it; `ignore` trains without.
        allow_suspect: accept features and weights that look like marks of missing values.
    """

    path: DataPath
    edge_inputs: Literal["use", "ignore"] = "use"
    allow_suspect: bool = False


class LinkConfig(NetworksConfig):
    """Configuration of link prediction: graph, network, pairs that are no edges, and training.

    Attributes:
        split: shares of the edges for validation and test, of which no message tells.
        model: the network over the nodes.
        width: number of components of a node, whose products with another's are the score of an
            edge; an even number.
        negatives: pairs without an edge that are drawn for each edge in each epoch.
        training: `batch_size` counts edges; each batch computes the whole graph once.
    """

    domain: Literal["graph_links"] = "graph_links"
    data: LinkDataConfig
    split: GraphShares = GraphShares(validation=0.05, test=0.1)
    model: AnyModel = GCN(hidden=64, dropout=0)
    width: int = Field(default=64, gt=0, multiple_of=2)
    negatives: PositiveInt = 1
    training: TrainingConfig = TrainingConfig(epochs=50, batch_size=4096)

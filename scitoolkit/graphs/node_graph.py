"""A graph file or a partitioned graph, and a process's part of it for the training."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs import sharing
from scitoolkit.graphs.config import GraphConfig, GraphDataConfig
from scitoolkit.graphs.graph import Graph, GraphInputs, read_graph
from scitoolkit.graphs.losses import class_weights
from scitoolkit.graphs.part import Part
from scitoolkit.graphs.partitioned import PartitionedGraph
from scitoolkit.graphs.sharing import Moments
from scitoolkit.graphs.stored_part import StoredPart, whole_graph
from scitoolkit.graphs.task import PartLoader
from scitoolkit.io.split import SPLITS
from scitoolkit.training.processes import on_rank_zero
from scitoolkit.training.ranks.communicator import Communicator, SingleProcess, join

EDGE_FACTS = ("self_loops", "duplicate_edges", "isolated_nodes")


@dataclass(frozen=True)
class OwnInputs:
    """A process's part of a graph and loaders of its labelled nodes.

    Attributes:
        part: the part.
        loaders: loaders of train, validation and test.
        num_edges: number of edges of the whole graph.
        num_outputs: number of classes, labels or values per node.
        moments: mean and standard deviation of the training values; None for other targets.
        weights: factor of each class in the loss, shape (classes,), float64; None for 1.
        edge_facts: returns counts of self-loops, duplicate edges and isolated nodes of the graph.
    """

    part: Part
    loaders: dict[str, PartLoader]
    num_edges: int
    num_outputs: int
    moments: Moments | None
    weights: Tensor | None
    edge_facts: Callable[[], dict[str, int]]


def open_parts(config: GraphDataConfig, path: Path) -> PartitionedGraph:
    """Open a partitioned graph.

    Raises:
        ConfigError: it was partitioned with another target.
        DataError: no such graph.
    """
    graph = PartitionedGraph.open(path)
    stored = graph.header["target"]
    if stored != config.target:
        raise ConfigError(
            f"the graph was partitioned with {stored}",
            where="data.target",
            allowed=stored,
            fix=f"data.target={stored}, or scitoolkit graphs partition --target {config.target}",
        )
    return graph


def read_whole(config: GraphDataConfig, path: Path) -> Graph:
    """Read a graph file or a partitioned graph into memory, with edge inputs as configured."""
    path = Path(path)
    if path.is_dir():
        graph = whole_graph(open_parts(config, path))
    else:
        graph = read_graph(path, config.target, config.split)
    if config.edge_inputs == "ignore":
        graph.edge_weight = graph.edge_attr = graph.edge_type = None
        graph.node_type = graph.pos = None
    return graph


class NodeGraph:
    """A graph file or a partitioned graph, read when values are first asked for.

    Args:
        config: of the job.
        path: of the file or the folder.

    Attributes:
        config: the preprocessing.
        path: as above.
    """

    def __init__(self, config: GraphConfig, path: Path) -> None:
        self._job = config
        self.config: GraphDataConfig = config.data
        self.path: Path = Path(path)

    @property
    def where(self) -> str:
        """The path, for messages."""
        return str(self.path)

    @functools.cached_property
    def stored(self) -> PartitionedGraph | None:
        """The partitioned graph, None for a file."""
        return open_parts(self.config, self.path) if self.path.is_dir() else None

    @functools.cached_property
    def whole(self) -> Graph:
        """The whole graph in memory."""
        return read_whole(self.config, self.path)

    @functools.cached_property
    def inputs(self) -> GraphInputs:
        """Shapes of node and edge inputs."""
        if self.stored is None:
            return self.whole.inputs
        header, used = self.stored.header, self.config.edge_inputs == "use"
        attr = tuple(header["edge_attr"]) if used and header["edge_attr"] is not None else None
        types = header.get("edge_types", 0) if used else 0
        return GraphInputs(header["num_features"], used and header["edge_weight"], attr, types)

    @property
    def num_outputs(self) -> int | None:
        """Number of classes, labels or values of a node; None without labels."""
        if self.stored is not None:
            return self.stored.header["num_outputs"] or None
        return None if self.whole.labels is None else self.whole.num_classes

    @property
    def sizes(self) -> dict[str, int]:
        """Number of nodes of train, validation and test, over all processes."""
        if self.stored is not None:
            return dict(self.stored.header["splits"])
        return {name: len(nodes) for name, nodes in self.whole.parts.items()}

    @functools.cached_property
    def own(self) -> OwnInputs:
        """This process's training inputs.

        Raises:
            ConfigError: the number of processes differs from the number of parts.
            DataError: inconsistent files.
        """
        if self.stored is not None:
            return _of_stored(self._job, self.stored, join())
        return _of_file(self._job, self.whole, join())


def _of_file(config: GraphConfig, graph: Graph, ranks: Communicator) -> OwnInputs:
    owner = on_rank_zero(lambda: sharing.choose_owner(graph, config.graph, ranks.size, config.seed))
    part = sharing.share(graph, config.graph, ranks, owner)
    x = sharing.normalised_features(graph, config.data.normalise, part.nodes.numpy())
    loaders = {
        name: PartLoader(x, part.nodes, graph.known_labels, nodes)
        for name, nodes in graph.parts.items()
        if len(nodes)
    }
    moments = None
    if config.data.target == "values" and len(graph.parts.get("train", ())):
        moments = sharing.moments(
            [lambda: graph.known_labels[graph.parts["train"]]], SingleProcess()
        )
    train = graph.parts.get("train", np.zeros(0, np.int64))
    weights = class_weights(
        config.data.class_weights, graph.num_classes, graph.known_labels[train], SingleProcess()
    )
    return OwnInputs(
        part,
        loaders,
        graph.num_edges,
        graph.num_classes,
        moments,
        weights,
        graph.edge_facts,
    )


def _of_stored(config: GraphConfig, graph: PartitionedGraph, ranks: Communicator) -> OwnInputs:
    part = StoredPart(graph, ranks)
    if config.data.edge_inputs == "ignore":
        part.inputs = replace(part.inputs, edge_weight=False, edge_attr=None, edge_types=0)
    x = sharing.stored_features(part, config.data.normalise)
    labels = part.files.read("y") if "y" in part.files else np.zeros(0)
    loaders = {}
    for name in SPLITS:
        if graph.header["splits"].get(name):
            place = part.files.read(name)
            total = graph.header["splits"][name]
            loaders[name] = PartLoader.of_places(x, place, labels[place], total)
    header, moments = graph.header, None
    if config.data.target == "values" and "train" in loaders:
        moments = sharing.moments([lambda: labels[part.files.read("train")]], ranks)
    train = labels[part.files.read("train")] if "train" in loaders else labels[:0]
    weights = class_weights(config.data.class_weights, header["num_outputs"], train, ranks)
    facts = {name: header[name] for name in EDGE_FACTS}
    return OwnInputs(
        part,
        loaders,
        header["num_edges"],
        header["num_outputs"],
        moments,
        weights,
        lambda: facts,
    )

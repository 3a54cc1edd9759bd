"""A process's part of a graph with what its training reads: loaders, moments and class weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from scitoolkit.graphs import sharing
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.losses import class_weights
from scitoolkit.graphs.part import Part
from scitoolkit.graphs.partitioned import PartitionedGraph
from scitoolkit.graphs.sharing import Moments
from scitoolkit.graphs.stored_part import StoredPart
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


def own_inputs(config: GraphConfig, graph: Graph | PartitionedGraph) -> OwnInputs:
    """Return this process's training inputs of a graph in memory, or of a partitioned graph.

    Raises:
        ConfigError: the number of processes differs from the number of parts.
        DataError: inconsistent files.
    """
    if isinstance(graph, PartitionedGraph):
        return _of_stored(config, graph, join())
    return _of_file(config, graph, join())


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
    sizes = graph.num_edges, graph.num_classes
    return OwnInputs(part, loaders, *sizes, moments, weights, graph.edge_facts)


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
    sizes = header["num_edges"], header["num_outputs"]
    return OwnInputs(part, loaders, *sizes, moments, weights, lambda: facts)

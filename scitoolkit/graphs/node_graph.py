"""A graph file or a partitioned graph; reading its sizes and values imports no torch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.columns import numbers_of
from scitoolkit.graphs.config import GraphConfig, GraphDataConfig
from scitoolkit.graphs.graph import Graph, GraphInputs, read_graph
from scitoolkit.graphs.partitioned import PartFiles, PartitionedGraph

if TYPE_CHECKING:
    from scitoolkit.graphs.own_inputs import OwnInputs

# Functions import what imports torch: `validate` does without.


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
        from scitoolkit.graphs.stored_part import whole_graph

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

    def arrays(self, parts: Sequence[PartFiles] = ()) -> dict[str, list[Any]]:
        """Return features of nodes and numbers of edges: those of some parts, else of all.

        Args:
            parts: parts of the partitioned graph, whose arrays are memory-mapped.
        """
        if not parts:
            return numbers_of(self.whole)
        names = ["x", *(n for n in self.inputs.of_edges if n != "edge_type")]
        return {n: [p.map(n) for p in parts] for n in names if n in parts[0]}

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
        from scitoolkit.graphs.own_inputs import own_inputs

        return own_inputs(self._job, self.whole if self.stored is None else self.stored)

"""The stages of models of whole graphs that are about the data; without torch."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scitoolkit.core.data_differences import Accepts, Difference, refuse
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.job import Finding
from scitoolkit.graphs.facts import ACCEPTS, graph_set_facts
from scitoolkit.graphs.graph_set import StackedGraphs
from scitoolkit.graphs.graph_set_config import GraphSetConfig
from scitoolkit.graphs.graph_set_files import read_graphs
from scitoolkit.surrogate.stages import DataStages, Rows


class GraphSetData(DataStages):
    """Stages of the data, a `StackedGraphs` whose samples are graphs."""

    def open(self, config: GraphSetConfig, path: Any) -> StackedGraphs:
        """Read all graphs into memory."""
        data = config.data
        return read_graphs(
            path,
            data.target,
            columns=data.columns,
            ignore=data.ignore,
            undirected=data.undirected,
            split=data.split,
            integers=data.integers,
        )

    def facts(self, config: GraphSetConfig, data: StackedGraphs) -> DataFacts:
        """Return inputs, target and units."""
        return graph_set_facts(data)

    def accepts(self, config: GraphSetConfig) -> Accepts:
        """Allow graphs without a target."""
        return ACCEPTS

    def convert(
        self, data: StackedGraphs, differences: Sequence[Difference], trained: DataFacts | None
    ) -> StackedGraphs:
        """Return the graphs; refuse a change between whole numbers, categories, and real ones."""
        if trained is not None:
            before = {variable.name: variable.kind for variable in trained.variables}
            other = [
                Difference("error", v.name, f"{before[v.name]} numbers", f"{v.kind} numbers")
                for v in graph_set_facts(data).variables
                if v.role != "label" and before.get(v.name, v.kind) != v.kind
            ]
            refuse(other, data.where)
        return data

    def examine(self, config: GraphSetConfig, data: StackedGraphs) -> list[Finding]:
        """Tell how many graphs of the test part are also in the training part."""
        parts = self.split(config, data)
        train, test = (
            {_digest(data, g) for g in np.asarray(parts.get(n, ()), np.int64).tolist()}
            for n in ("train", "test")
        )
        count = len(train & test)
        if not count:
            return []
        what = f"{count} graphs of the test part are equal to graphs of the training part"
        return [Finding(what, "data.path", "warning")]

    def split(self, config: GraphSetConfig, data: StackedGraphs) -> Mapping[str, Rows]:
        """Return the parts of the file, or shares of the labelled graphs in a random order."""
        if data.parts:
            return {name: part.tolist() for name, part in data.labelled_parts().items()}
        labelled = np.flatnonzero(data.learned.known(data.target))
        return config.split.drawn(labelled, config.seed)


def _digest(data: StackedGraphs, graph: int) -> int:
    """Return a checksum of the inputs of a graph."""
    nodes = slice(*data.first_node[graph : graph + 2])
    edges = slice(*data.first_edge[graph : graph + 2])
    # Of arrays in their order: the same graph with other numbers of nodes is not found.
    digest = zlib.crc32(np.ascontiguousarray(data.edge_index[:, edges]).tobytes())
    for name, array in sorted(data.arrays.items()):
        part = array[edges if name.startswith("edge") else nodes]
        digest = zlib.crc32(np.ascontiguousarray(part).tobytes(), digest)
    return digest

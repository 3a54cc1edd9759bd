"""The stages of models of nodes that are about the data; without torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from scitoolkit.core.data_differences import Accepts
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import DataError
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.facts import ACCEPTS, node_facts
from scitoolkit.graphs.node_graph import NodeGraph
from scitoolkit.graphs.ugrid import field_facts, is_ugrid
from scitoolkit.io.split import SPLITS
from scitoolkit.surrogate.stages import DataStages, Parts


class NodeData(DataStages):
    """Stages of the data, a `NodeGraph` whose samples are labelled nodes."""

    def open(self, config: GraphConfig, path: Any) -> NodeGraph:
        """Return the graph, of which nothing is read yet."""
        return NodeGraph(config, path)

    def facts(self, config: GraphConfig, data: NodeGraph) -> DataFacts:
        """Return node features, edge inputs and target; of a mesh, its fields and their times."""
        facts = node_facts(data.inputs, config.data.target, data.num_outputs)
        if not is_ugrid(data.path):
            return facts
        fields = field_facts(data.path)
        return DataFacts((*facts.variables, *fields.variables), fields.dims)

    def accepts(self, config: GraphConfig) -> Accepts:
        """Allow graphs without labels."""
        return ACCEPTS

    def split(self, config: GraphConfig, data: NodeGraph) -> Parts:
        """Return the parts that the file states.

        Raises:
            DataError: no training nodes.
        """
        if not data.sizes.get("train"):
            raise DataError("no training nodes", where=data.where, allowed="`train` with nodes")
        return numbered_parts(data)


def numbered_parts(data: NodeGraph) -> dict[str, list[range]]:
    """Return the samples of each part, numbered from train to test."""
    ends = np.cumsum([0, *(data.sizes.get(part, 0) for part in SPLITS)]).tolist()
    return {name: [range(a, b)] for name, (a, b) in zip(SPLITS, pairwise(ends), strict=True)}

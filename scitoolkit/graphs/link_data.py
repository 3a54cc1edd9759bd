"""The data of link prediction and their stages; without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.content import shipped_path
from scitoolkit.core.data_differences import Accepts
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import DataError
from scitoolkit.graphs.facts import ACCEPTS, node_facts
from scitoolkit.graphs.graph import Graph, arrays_of, from_data, graph_from_arrays
from scitoolkit.graphs.link_config import LinkConfig
from scitoolkit.graphs.pairs import NodePairs, pairs_of
from scitoolkit.surrogate.stages import DataStages, Rows

ASKED = "edge_label_index"
# Entries for other tasks than this one, and the pairs to score.
_NODES = (
    *("y", "labelled", "train_mask", "val_mask", "test_mask"),
    *("train", "val", "validation", "test", ASKED),
)


@dataclass
class LinkData:
    """A graph and its pairs.

    Attributes:
        graph: the graph.
        pairs: its pairs with an edge.
        asked: pairs to score in a prediction, shape (n, 2); None if the file names none.
    """

    graph: Graph
    pairs: NodePairs
    asked: np.ndarray | None = None

    @property
    def where(self) -> str:
        """Source of the graph, for messages."""
        return self.graph.where

    def telling(self, rows: Rows) -> np.ndarray:
        """Return the mask of the edges of some pairs and of the self-loops, shape (E,)."""
        chosen = np.zeros(len(self.pairs) + 1, bool)
        chosen[np.asarray(rows, np.int64)] = chosen[-1] = True
        # Self-loops have pair -1, which names the last entry: they always send.
        mask: np.ndarray = chosen[self.pairs.of_edge]
        return mask


class LinkDataStages(DataStages):
    """Stages of the data, a `LinkData` whose samples are pairs with an edge."""

    def open(self, config: LinkConfig, path: Any) -> LinkData:
        """Read the graph, and the pairs to score from its `edge_label_index`."""
        graph, asked = _read(Path(path))
        if config.data.edge_inputs == "ignore":
            graph.edge_weight = graph.edge_attr = graph.edge_type = None
            graph.node_type = graph.pos = None
        return LinkData(graph, pairs_of(graph), asked)

    def facts(self, config: LinkConfig, data: LinkData) -> DataFacts:
        """Return the inputs of nodes and edges."""
        return node_facts(data.graph.inputs, "classes", None)

    def accepts(self, config: LinkConfig) -> Accepts:
        """Allow graphs of any size with the same inputs."""
        return ACCEPTS

    def split(self, config: LinkConfig, data: LinkData) -> Mapping[str, Rows]:
        """Return shares of the pairs in a random order; both directions are in one part."""
        return config.split.drawn(np.arange(len(data.pairs)), config.seed)


def _read(path: Path) -> tuple[Graph, np.ndarray | None]:
    """Return the graph of a file, and the pairs that it asks for."""
    path = Path(shipped_path(path))
    if path.suffix == ".pt":
        from scitoolkit.graphs.pyg_files import load_data

        held = load_data(path)
        stores = [held[kind] for kind in getattr(held, "node_types", ())] or [held]
        taken = {n: s.pop(n) for s in stores if hasattr(s, "pop") for n in _NODES if n in s}
        graph = from_data(held, where=str(path))
    else:
        held = arrays_of(path)
        taken = {name: held.pop(name) for name in _NODES if name in held}
        graph = graph_from_arrays(held, where=str(path))
    asked = taken.get(ASKED)
    if asked is None:
        return graph, None
    pairs = np.asarray(asked, np.int64)
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        raise DataError(f"{ASKED} of shape {pairs.shape}", where=str(path), allowed="(2, n)")
    if pairs.size and not 0 <= pairs.min() <= pairs.max() < graph.num_nodes:
        raise DataError(
            f"{ASKED} from {pairs.min()} to {pairs.max()}",
            where=str(path),
            allowed=f"0 to {graph.num_nodes - 1}",
        )
    return graph, pairs.T

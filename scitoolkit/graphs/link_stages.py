"""The stages of link prediction, in the life of `scitoolkit.surrogate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from scitoolkit.core.content import shipped_path
from scitoolkit.core.contracts import Batch, Progress
from scitoolkit.core.data_differences import Accepts
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.devices import device_of
from scitoolkit.core.errors import DataError
from scitoolkit.core.results import Results
from scitoolkit.core.seeds import derive_seed
from scitoolkit.graphs.adapter import accepted_inputs, named_inputs
from scitoolkit.graphs.facts import ACCEPTS, node_facts
from scitoolkit.graphs.graph import Graph, arrays_of, from_data, graph_from_arrays
from scitoolkit.graphs.link_config import LinkConfig
from scitoolkit.graphs.pairs import NodePairs, common_neighbours, pairs_of, ranking
from scitoolkit.graphs.pyg_files import load_data
from scitoolkit.io.fields import write_fields
from scitoolkit.io.loader import BatchLoader
from scitoolkit.surrogate import Opened, Stages, array_loader
from scitoolkit.surrogate.sections import compared
from scitoolkit.surrogate.stages import Rows

ASKED = "edge_label_index"
# Entries for other tasks than this one, and the pairs to score.
_NODES = (
    *("y", "labelled", "train_mask", "val_mask", "test_mask"),
    *("train", "val", "validation", "test", ASKED),
)
COMPARED = 100
"""NodePairs without an edge with which an edge is compared in an evaluation."""
_VALIDATION = 1 << 32  # stands for an epoch: all validations draw the same pairs


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

    def inputs(self, edges: np.ndarray) -> dict[str, Tensor]:
        """Return what a network receives if some edges send messages.

        Args:
            edges: mask of the edges, shape (E,).
        """
        graph = self.graph
        pair = np.stack([graph.source[edges], graph.target[edges]])
        arrays: dict[str, Any] = {
            "x": graph.dense_features(np.arange(graph.num_nodes)),
            "edge_index": pair,
        }
        for name in graph.inputs.of_edges:
            arrays[name] = getattr(graph, name)[edges]
        for name in graph.inputs.of_nodes:
            arrays[name] = getattr(graph, name)
        tensors = {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
        return {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}

    def telling(self, rows: Rows) -> np.ndarray:
        """Return the mask of the edges of some pairs and of the self-loops, shape (E,)."""
        chosen = np.zeros(len(self.pairs) + 1, bool)
        chosen[np.asarray(rows, np.int64)] = chosen[-1] = True
        # Self-loops have pair -1, which names the last entry: they always send.
        mask: np.ndarray = chosen[self.pairs.of_edge]
        return mask


class LinkModel(nn.Module):
    """Network over the nodes, and products of the components of two nodes.

    Args:
        network: called with x, edge_index and the other inputs by name; returns (N, width).
        directed: whether the first half of the components belongs to senders, the second one to
            receivers.
    """

    def __init__(self, network: nn.Module, directed: bool) -> None:
        super().__init__()
        self.network: nn.Module = network
        self._directed = directed
        self._named = accepted_inputs(network) - {"x", "edge_index"}

    def forward(self, inputs: Mapping[str, Tensor], pairs: Tensor) -> Tensor:
        """Return the logit of an edge for each pair (n, 2), shape (n,)."""
        others = {n: t for n, t in inputs.items() if n in self._named}
        z = self.network(inputs["x"], inputs["edge_index"], **others)
        first, second = z[pairs[:, 0]], z[pairs[:, 1]]
        if self._directed:
            # A product of the same components is symmetric and scores a -> b as b -> a.
            first, second = first.chunk(2, 1)[0], second.chunk(2, 1)[1]
        return (first * second).sum(1)


class LinkTask:
    """Cross-entropy of edges and of pairs without an edge.

    What is drawn follows from seed, epoch and pair, and dropout from seed and step, so that any
    number of processes learns the same.

    Args:
        model: the network.
        data: graph and pairs.
        train: numbers of the pairs of the training part, whose edges send messages.
        negatives: pairs without an edge for each edge.
        seed: seed of the draws.
    """

    def __init__(
        self, model: LinkModel, data: LinkData, train: Rows, negatives: int, seed: int
    ) -> None:
        self.model: nn.Module = model
        self._data, self._train = data, np.asarray(train, np.int64)
        self._inputs = data.inputs(data.telling(train))
        self._count, self._seed = negatives, seed
        self._epoch, self._step = 0, 0
        self._drawn: dict[int, Tensor] = {}

    def at(self, progress: Progress) -> None:
        """Receive the position of the training."""
        self._epoch, self._step = progress.epoch, progress.step

    def _receivers(self, epoch: int, numbers: Tensor) -> Tensor:
        """Return nodes to which the senders of some pairs have no edge, shape (n, negatives)."""
        if epoch not in self._drawn:
            # A model may only know the edges of its training; a validation knows all edges.
            edges = np.arange(len(self._data.pairs)) if epoch == _VALIDATION else self._train
            senders = self._data.pairs.pairs[:, 0]
            drawn = self._data.pairs.without_edge(senders, edges, self._count, (self._seed, epoch))
            self._drawn = {e: t for e, t in self._drawn.items() if e == _VALIDATION}
            self._drawn[epoch] = torch.from_numpy(drawn)
        return self._drawn[epoch][numbers.cpu()].to(numbers.device)

    def _scores(self, batch: Batch, epoch: int) -> tuple[Tensor, Tensor]:
        pairs = batch["pair"]
        others = self._receivers(epoch, batch["number"])
        senders = pairs[:, :1].expand(-1, self._count)
        wrong = torch.stack([senders, others], -1).reshape(-1, 2)
        if self._inputs["x"].device != pairs.device:
            self._inputs = {n: t.to(pairs.device) for n, t in self._inputs.items()}
        out = self.model(self._inputs, torch.cat([pairs, wrong]))
        return out[: len(pairs)], out[len(pairs) :].view(len(pairs), self._count)

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean over edges of both cross-entropies."""
        with torch.random.fork_rng():
            torch.manual_seed(derive_seed(self._seed, self._step))
            right, wrong = self._scores(batch, self._epoch)
        return _cross_entropy(right, wrong), {}

    def metrics(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss and the share of pairs without an edge that score below the edge."""
        right, wrong = self._scores(batch, _VALIDATION)
        below = (wrong < right[:, None]).double() + (wrong == right[:, None]).double() / 2
        return {"loss": _cross_entropy(right, wrong), "auc": below.mean()}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of edges."""
        return len(batch["pair"])


def _cross_entropy(right: Tensor, wrong: Tensor) -> Tensor:
    # -log sigmoid(right) - log(1 - sigmoid(wrong)), which does not overflow in this form.
    return nn.functional.softplus(-right).mean() + nn.functional.softplus(wrong).mean()


class LinkStages(Stages):
    """Stages of link prediction; data are a `LinkData`, samples are pairs with an edge."""

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
        order = np.random.default_rng(config.seed).permutation(len(data.pairs))
        test = round(config.split.test * len(order))
        validation = test + round(config.split.validation * len(order))
        return {
            "train": order[validation:].tolist(),
            "validation": order[test:validation].tolist(),
            "test": order[:test].tolist(),
        }

    def measure(self, config: LinkConfig, data: LinkData, rows: Rows) -> Mapping[str, Any]:
        """Return the sizes of the inputs, and whether edges have a direction."""
        inputs = data.graph.inputs
        return {
            "features": inputs.num_features,
            "edge_types": inputs.edge_types,
            "edge_features": inputs.edge_features,
            "node_types": inputs.node_types,
            "receivers": list(inputs.receivers),
            "directed": bool(data.pairs.directed),
        }

    def build(self, config: LinkConfig, facts: Any, measured: Any, seed: int) -> LinkModel:
        """Return an untrained model."""
        torch.manual_seed(seed)
        made = config.model.for_graph(
            measured["edge_types"],
            measured["edge_features"],
            measured["node_types"],
            tuple(measured["receivers"]),
        )
        return LinkModel(made.build(measured["features"], config.width), measured["directed"])

    def task(self, config: LinkConfig, opened: Opened, model: LinkModel) -> LinkTask:
        """Return the loss over edges and drawn pairs."""
        data: LinkData = opened.data
        named_inputs(model.network, data.graph.inputs)
        train = opened.parts["train"]
        return LinkTask(model, data, train, config.negatives, config.training.seed)

    def loader(
        self, config: LinkConfig, opened: Opened, part: str, model: nn.Module
    ) -> BatchLoader:
        """Return batches of pairs with an edge."""
        numbers = np.asarray(opened.parts[part], np.int64)
        pairs = opened.data.pairs.pairs[numbers]
        return array_loader(config.training, part, pair=pairs, number=numbers)

    def evaluate(
        self, config: LinkConfig, model: Any, data: LinkData, rows: Rows | None
    ) -> Results:
        """Rank hidden edges among pairs without an edge that share the sender."""
        parts = self.split(config, data)
        numbers = np.asarray(parts["test"] if rows is None else rows, np.int64)
        if not len(numbers):
            raise DataError("no edges to evaluate on", where=data.where, fix="split.test=0.1")
        pairs, edges = data.pairs.pairs[numbers].copy(), np.arange(len(data.pairs))
        if not data.pairs.directed:
            # The sender of an undirected pair is not always the node with the lower number.
            turned = np.random.default_rng(config.seed).random(len(pairs)) < 0.5
            pairs[turned] = pairs[turned, ::-1]
        # No pair of any part counts as wrong, the filtered setting of Bordes et al. (2013).
        others = data.pairs.without_edge(pairs[:, 0], edges, COMPARED, (config.seed, len(pairs)))
        wrong = np.stack([np.repeat(pairs[:, 0], COMPARED), others.ravel()], axis=1)
        both = np.concatenate([pairs, wrong])
        telling = data.telling(parts["train"])
        degree = np.bincount(data.graph.target[telling], minlength=data.graph.num_nodes)
        scores = {
            config.model.name: _logits(model, data, telling, both),
            "common neighbours": common_neighbours(_subgraph(data.graph, telling), both),
            "degree": degree[both[:, 1]].astype(np.float64),
        }
        figures = {
            name: ranking(s[: len(pairs)], s[len(pairs) :].reshape(len(pairs), COMPARED))
            for name, s in scores.items()
        }
        return compared(
            f"Edges of {Path(data.where).name}",
            [
                f"{len(pairs)} hidden edges of {len(data.pairs)}, each among {COMPARED} pairs "
                "without an edge that share its sender.",
            ],
            figures,
            "mrr",
            better="max",
            table="Ranks of hidden edges",
            heading="Mean reciprocal rank",
            label="mean reciprocal rank",
        )

    def predict(self, config: LinkConfig, model: Any, data: LinkData, output: Path) -> None:
        """Write the probability of an edge for each pair that the file asks for.

        Raises:
            DataError: the file asks for none.
        """
        if data.asked is None:
            raise DataError("no pairs to score", where=data.where, allowed=f"a key {ASKED}, (2, n)")
        telling = np.ones(data.graph.num_edges, bool)
        logits = _logits(model, data, telling, data.asked)
        dataset = xr.Dataset(
            {
                "probability": ("pair", 1 / (1 + np.exp(-logits)), {"units": "1"}),
                "sender": ("pair", data.asked[:, 0]),
                "receiver": ("pair", data.asked[:, 1]),
            },
            attrs={"title": f"edges of {Path(data.where).name}"},
        )
        write_fields(dataset, output)


def _read(path: Path) -> tuple[Graph, np.ndarray | None]:
    """Return the graph of a file, and the pairs that it asks for."""
    path = Path(shipped_path(path))
    if path.suffix == ".pt":
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


def _subgraph(graph: Graph, edges: np.ndarray) -> Graph:
    none = np.zeros((graph.num_nodes, 0), np.float32)
    return Graph(graph.source[edges], graph.target[edges], graph.num_nodes, none)


@torch.no_grad()
def _logits(model: Any, data: LinkData, edges: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    device = device_of(model)
    inputs = {name: t.to(device) for name, t in data.inputs(edges).items()}
    out: np.ndarray = model(inputs, torch.from_numpy(np.ascontiguousarray(pairs)).to(device))
    return torch.as_tensor(out).cpu().double().numpy()

"""The stages of link prediction, in the life of `scitoolkit.surrogate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch, Progress
from scitoolkit.core.devices import device_of
from scitoolkit.core.errors import DataError
from scitoolkit.core.results import Results
from scitoolkit.core.seeds import derive_seed
from scitoolkit.graphs.adapter import accepted_inputs, named_inputs
from scitoolkit.graphs.columns import (
    column_moments,
    numbers_of,
    refuse_marked_columns,
    usual_columns,
    warn_of_columns,
)
from scitoolkit.graphs.facts import require_types
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.link_config import LinkConfig
from scitoolkit.graphs.link_data import ASKED, LinkData, LinkDataStages
from scitoolkit.graphs.pairs import common_neighbours, ranking
from scitoolkit.graphs.stages import measured_of
from scitoolkit.graphs.weighting import require_positive_degrees
from scitoolkit.io.loader import BatchLoader
from scitoolkit.surrogate import Opened, Stages, array_loader
from scitoolkit.surrogate.sections import compared
from scitoolkit.surrogate.stages import Rows

COMPARED = 100
"""NodePairs without an edge with which an edge is compared in an evaluation."""
_VALIDATION = 1 << 32  # stands for an epoch: all validations draw the same pairs


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
        self.measured: Mapping[str, Any] = {}  # set by `build`
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
        self._inputs = inputs_of(data, data.telling(train))
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


class LinkStages(LinkDataStages, Stages):
    """Stages of link prediction; data are a `LinkData`, samples are pairs with an edge."""

    start_settings = ("model", "width", "data.edge_inputs")
    remeasured = ("columns",)

    def measure(self, config: LinkConfig, data: LinkData, rows: Rows) -> Mapping[str, Any]:
        """Return sizes and moments of the inputs, and whether edges have a direction."""
        if config.model.divides_by_degrees:
            require_positive_degrees(data.graph)
        arrays = numbers_of(data.graph)
        if not config.data.allow_suspect:
            refuse_marked_columns(arrays, data.where)
        columns = usual_columns(column_moments(arrays))
        sizes = data.graph.inputs.measured()
        return {**sizes, "columns": columns, "directed": bool(data.pairs.directed)}

    def build(self, config: LinkConfig, facts: Any, measured: Any, seed: int) -> LinkModel:
        """Return an untrained model."""
        torch.manual_seed(seed)
        made = config.model.build_for(measured, config.width)
        model = LinkModel(made, measured["directed"])
        model.measured = measured
        return model

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

    def predict(self, config: LinkConfig, model: Any, data: LinkData, output: Path) -> xr.Dataset:
        """Return the probability of an edge for each pair that the file asks for.

        Raises:
            DataError: the file asks for none.
        """
        if data.asked is None:
            raise DataError("no pairs to score", where=data.where, allowed=f"a key {ASKED}, (2, n)")
        telling = np.ones(data.graph.num_edges, bool)
        logits = _logits(model, data, telling, data.asked)
        return xr.Dataset(
            {
                "probability": ("pair", 1 / (1 + np.exp(-logits)), {"units": "1"}),
                "sender": ("pair", data.asked[:, 0]),
                "receiver": ("pair", data.asked[:, 1]),
            },
            attrs={"title": f"edges of {Path(data.where).name}"},
        )


def _subgraph(graph: Graph, edges: np.ndarray) -> Graph:
    none = np.zeros((graph.num_nodes, 0), np.float32)
    return Graph(graph.source[edges], graph.target[edges], graph.num_nodes, none)


def inputs_of(data: LinkData, edges: np.ndarray) -> dict[str, Tensor]:
    """Return what a network receives if the edges of a mask (E,) send messages."""
    graph = data.graph
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


@torch.no_grad()
def _logits(model: Any, data: LinkData, edges: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    measured = measured_of(model)
    require_types(measured, data.graph.inputs, data.where)
    own = column_moments(numbers_of(data.graph))
    warn_of_columns(measured.get("columns", {}), own, data.where)
    device = device_of(model)
    inputs = {name: t.to(device) for name, t in inputs_of(data, edges).items()}
    out: np.ndarray = model(inputs, torch.from_numpy(np.ascontiguousarray(pairs)).to(device))
    return torch.as_tensor(out).cpu().double().numpy()

"""Training on sampled neighbourhoods by the NeighborLoader of torch-geometric."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.core.seeds import derive_seed
from scitoolkit.graphs.adapter import named_inputs
from scitoolkit.graphs.config import GraphConfig
from scitoolkit.graphs.graph import Graph
from scitoolkit.graphs.losses import class_sums, label_sums, value_sums
from scitoolkit.graphs.own_inputs import OwnInputs
from scitoolkit.io.loader import BatchLoader


class SampledNeighbours:
    """Source of samples for a loader, whose samples are nodes with sampled neighbours.

    What is sampled follows from the nodes of a batch and the seed, so that a resumed run samples
    what the whole run does.

    Args:
        graph: the whole graph.
        x: features of all nodes, shape (N, F).
        nodes: nodes that are samples, labelled.
        neighbours: how many are sampled for each node, layer by layer; -1 for all.
        seed: of the sampling.

    Raises:
        BackendError: torch-geometric has no package that samples.
    """

    def __init__(
        self, graph: Graph, x: Tensor, nodes: np.ndarray, neighbours: tuple[int, ...], seed: int
    ) -> None:
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader

        pair = torch.from_numpy(np.stack([graph.source, graph.target]))
        self._graph, self._x, self._nodes, self._seed = graph, x, nodes, seed
        self.bytes_read: int = 0
        data = Data(edge_index=pair, num_nodes=graph.num_nodes)
        try:
            with warnings.catch_warnings():
                # It prefers pyg-lib to torch-sparse, which samples as well.
                warnings.filterwarnings("ignore", ".*without a 'pyg-lib'", UserWarning)
                self._loader = NeighborLoader(data, list(neighbours))
            self._loader(torch.from_numpy(nodes[:1]))
        except ImportError:
            raise BackendError(
                "sampling needs the package pyg-lib or torch-sparse",
                where="sampling.neighbours",
                fix="install one of them, or leave `sampling` out: the graph is trained as a whole",
            ) from None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._nodes)

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Return nodes, first those of the samples, and edges of the sampled neighbourhood."""
        chosen, graph = self._nodes[indices], self._graph
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self._seed, zlib.crc32(chosen.tobytes())))
            part = self._loader(torch.from_numpy(chosen))
        nodes, edges = part.n_id.numpy(), part.e_id.numpy()
        batch = {
            "x": self._x[part.n_id].numpy(),
            "edge_index": part.edge_index.numpy(),
            "label": graph.known_labels[chosen],
            **{name: getattr(graph, name)[edges] for name in graph.inputs.of_edges},
            **{name: getattr(graph, name)[nodes] for name in graph.inputs.of_nodes},
        }
        self.bytes_read += sum(array.nbytes for array in batch.values())
        return batch

    def describe(self) -> dict[str, Any]:
        """Return sizes and checksums of the graph."""
        arrays = (self._nodes, self._graph.source, self._graph.target)
        sums = [zlib.crc32(np.ascontiguousarray(a).tobytes()) for a in arrays]
        return {"nodes": len(self._nodes), "edges": self._graph.num_edges, "sums": sums}


class SampledNodeTask:
    """Loss and metrics of the nodes of a batch, as means over them.

    Args:
        model: called with x, edge_index and the other inputs of the graph by name.
        config: of the job.
        own: moments of values or weights of classes.
        named: names of the other inputs.
    """

    def __init__(
        self, model: nn.Module, config: GraphConfig, own: OwnInputs, named: list[str]
    ) -> None:
        self.model: nn.Module = model
        self._target, self._own, self._named = config.data.target, own, named

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean loss over the nodes."""
        return self.metrics(batch)["loss"], {}

    def metrics(self, batch: Batch) -> dict[str, Tensor]:
        """Return means over the nodes."""
        others = {name: batch[name] for name in self._named}
        label = batch["label"]
        out = self.model(batch["x"], batch["edge_index"], **others)[: len(label)]
        if self._target == "classes":
            sums = class_sums(out, label, self._own.weights)
        elif self._target == "labels":
            sums = label_sums(out, label)
        else:
            assert self._own.moments is not None
            sums = value_sums(out, label, *(torch.as_tensor(m) for m in self._own.moments))
        return {name: total / len(label) for name, total in sums.items()}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of nodes."""
        return len(batch["label"])


def sampled_task(config: GraphConfig, own: OwnInputs, model: nn.Module) -> SampledNodeTask:
    """Return the task of a model that sees sampled neighbourhoods.

    Raises:
        ConfigError: several processes, which would sample other neighbours than one.
    """
    if own.part.ranks.size > 1:
        raise ConfigError(
            f"sampled neighbours on {own.part.ranks.size} processes",
            where="sampling",
            allowed="one process",
            fix="leave `sampling` out: the processes divide the graph",
        )
    return SampledNodeTask(model, config, own, named_inputs(model, own.part.inputs))


def sampled_loader(config: GraphConfig, graph: Graph, x: Tensor, part: str) -> BatchLoader:
    """Return the batches of the labelled nodes of a part.

    Args:
        config: of the job, with `sampling`.
        graph: the whole graph.
        x: features of all nodes, shape (N, F).
        part: train or validation.

    Raises:
        BackendError: no package that samples.
    """
    assert config.sampling is not None
    settings = config.training
    neighbours, seed = config.sampling.neighbours, settings.seed
    source = SampledNeighbours(graph, x, graph.parts[part], neighbours, seed)
    # Without a thread: the sampler draws from the generator that the model draws from.
    return BatchLoader(source, settings.batch_size, seed=seed, shuffle=part == "train", prefetch=0)

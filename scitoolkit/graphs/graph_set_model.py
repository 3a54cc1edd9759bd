"""Network over a batch of graphs: embedded inputs, a network over nodes, pooling, a head."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.graphs.adapter import accepted_inputs

POOLED = ("mean", "sum", "max")
_PASSED = ("edge_weight", "edge_type", "pos", "z", "batch")


class InputEmbedding(nn.Module):
    """Linear layer of standardised numbers, plus a vector for each category of each column.

    Args:
        width: number of outputs.
        mean, deviation: of the numbers of the training, by column.
        categories: number of categories of each column; category 0 is any that the training does
            not have, whose vector is 0.
    """

    def __init__(
        self,
        width: int,
        mean: Sequence[float],
        deviation: Sequence[float],
        categories: Sequence[int],
    ) -> None:
        super().__init__()
        self.bias: nn.Parameter = nn.Parameter(torch.zeros(width))
        self.numbers: nn.Linear | None = nn.Linear(len(mean), width, bias=False) if mean else None
        self.columns: nn.ModuleList = nn.ModuleList(
            nn.Embedding(count + 1, width, padding_idx=0) for count in categories
        )
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        scale = torch.tensor(deviation, dtype=torch.float32)
        self.register_buffer("scale", torch.where(scale == 0, 1.0, scale))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """Return the embedding, shape (n, width).

        Args:
            numbers: shape (n, columns of numbers).
            categories: numbers of categories, shape (n, columns of categories).
        """
        out = self.bias.expand(len(numbers), -1)
        if self.numbers is not None:
            out = out + self.numbers((numbers - self.mean) / self.scale)
        for column, table in enumerate(self.columns):
            out = out + table(categories[:, column])
        return out


class GraphSetModel(nn.Module):
    """Model of whole graphs.

    Args:
        nodes: embedding of the inputs of nodes.
        edges: that of the features of edges; None without features.
        network: the network over nodes; it receives those of x, edge_index, edge_attr,
            edge_weight, edge_type, pos, z and batch that its `forward` names.
        pooling: mean, sum, max or none.
        hidden: width of the network's outputs, if they are pooled.
        outputs: number of outputs of a graph.
        measured: what was measured on the training graphs; `inputs` are the names of their inputs
            besides x and edge_index.

    Raises:
        ConfigError: the network does not accept one of the inputs.
    """

    def __init__(
        self,
        nodes: InputEmbedding,
        edges: InputEmbedding | None,
        network: nn.Module,
        pooling: str,
        hidden: int,
        outputs: int,
        measured: Mapping[str, Any],
    ) -> None:
        super().__init__()
        inputs: Sequence[str] = measured["inputs"]
        self.measured: Mapping[str, Any] = measured
        accepted = inspect.signature(type(network).forward).parameters
        taken = accepted_inputs(network)
        for name in inputs:
            if name not in taken and not (name == "z" and "x" in taken):
                fix = {
                    "pos": "data.positions=distances or features, or data.ignore=[pos]",
                    "edge_attr": "model.name=gine, or data.ignore=[edge_attr]",
                }
                raise ConfigError(
                    f"the graphs have {name}, which {type(network).__name__} does not accept",
                    where="model",
                    fix=fix.get(name, f"data.ignore=[{name}]"),
                )
        missing = [
            name
            for name in ("z", "pos")
            if name in accepted and accepted[name].default is inspect.Parameter.empty
            if name not in inputs
        ]
        if missing:
            raise ConfigError(
                f"{type(network).__name__} needs {missing[0]}, which the graphs do not have",
                where="model",
            )
        self.nodes: InputEmbedding | None = nodes if "x" in taken else None
        self.edges: InputEmbedding | None = edges if "edge_attr" in taken else None
        self.network: nn.Module = network
        self._taken, self._pooling = frozenset(taken), pooling
        self.head: nn.Module = nn.Identity()
        if pooling in POOLED:
            self.head = nn.Sequential(
                nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, outputs)
            )
        self._outputs = outputs

    def forward(self, batch: Batch) -> Tensor:
        """Return logits or standardised values, shape (graphs, outputs).

        Raises:
            ConfigError: the network's output has no row for each node, or for each graph with
                pooling none.
        """
        count = int(batch["num_graphs"])
        named: dict[str, Any] = {}
        if "edge_index" in self._taken:
            named["edge_index"] = batch["edge_index"]
        if self.nodes is not None:
            named["x"] = self.nodes(batch["node_numbers"], batch["node_categories"])
        if self.edges is not None:
            named["edge_attr"] = self.edges(batch["edge_numbers"], batch["edge_categories"])
        named |= {n: batch[n] for n in _PASSED if n in self._taken and n in batch}
        if "batch_size" in self._taken:
            named["batch_size"] = count
        try:
            out = self.network(**named)
        except ImportError as error:
            # SchNet and others search neighbours with a package that they import late.
            raise BackendError(
                f"{type(self.network).__name__}: {error}",
                where="model.network",
                fix="install the package, or choose another network",
            ) from None
        if self._pooling in POOLED:
            self._require(out, len(batch["batch"]), "nodes", "model.pooling=none")
            return self.head(_pooled(out, batch["batch"], count, self._pooling))
        self._require(out, count, "graphs", "pooling=mean")
        if out.shape[1] != self._outputs:
            raise ConfigError(
                f"the network returns {out.shape[1]} numbers for each graph",
                where="model",
                allowed=str(self._outputs),
                fix="data.columns",
            )
        return out

    def _require(self, out: Any, rows: int, of: str, fix: str) -> None:
        shape = getattr(out, "shape", None)
        if shape is None or len(shape) != 2 or shape[0] != rows:
            described = type(out).__name__ if shape is None else f"shape {tuple(shape)}"
            raise ConfigError(
                f"{type(self.network).__name__} returns {described}",
                where="model",
                allowed=f"a row for each of {rows} {of}",
                fix=fix.replace("model.", ""),
            )


def _pooled(values: Tensor, graph: Tensor, count: int, how: str) -> Tensor:
    """Return a row for each graph, shape (count, width)."""
    from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

    pools: Mapping[str, Any] = {
        "mean": global_mean_pool,
        "sum": global_add_pool,
        "max": global_max_pool,
    }
    pooled: Tensor = pools[how](values, graph, size=count)
    return pooled

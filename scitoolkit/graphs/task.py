"""Learning about nodes with the common trainer: the batch is this process's part of the graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import CheckpointError
from scitoolkit.graphs.adapter import distribute, dropout_by_node
from scitoolkit.graphs.part import Part
from scitoolkit.graphs.proof import Proof, prove
from scitoolkit.graphs.targets import TargetName


class PartLoader:
    """One batch an epoch: own features, and places and labels of own nodes of a part.

    Args:
        x: features of own nodes, shape (n_own, F).
        nodes: numbers of own nodes, shape (n_own,).
        labels: of every node of the graph, as `Graph.labels`.
        wanted: numbers of the part's nodes, of the whole graph.
    """

    def __init__(self, x: Tensor, nodes: Tensor, labels: np.ndarray, wanted: np.ndarray) -> None:
        own = nodes.numpy()
        place = np.flatnonzero(np.isin(own, wanted))
        self._set(x, place, labels[own[place]], len(wanted))

    @classmethod
    def of_places(cls, x: Tensor, place: np.ndarray, label: np.ndarray, total: int) -> PartLoader:
        """Make the loader of a part of which only own nodes are known.

        Args:
            x: features of own nodes, shape (n_own, F).
            place: places of own nodes of the part, shape (n,).
            label: their labels, shape (n,) or (n, outputs).
            total: nodes of the part on all processes.
        """
        loader = cls.__new__(cls)
        loader._set(x, place, label, total)
        return loader

    def _set(self, x: Tensor, place: np.ndarray, label: np.ndarray, total: int) -> None:
        self._batch: dict[str, Tensor] = {
            "x": x,
            "place": torch.from_numpy(place),
            "label": torch.from_numpy(label.astype(np.int64 if label.ndim == 1 else np.float32)),
        }
        self._total = total
        self._epoch, self._done = 0, False
        self._handed_out = 0

    def __len__(self) -> int:
        """One batch an epoch."""
        return 1

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch."""
        self._epoch, self._done = epoch, False

    def __iter__(self) -> Iterator[Batch]:
        """Give the batch, unless this epoch had it."""
        if not self._done:
            self._done = True
            self._handed_out += 1
            yield {**self._batch, "epoch": torch.tensor(self._epoch)}

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor."""
        return {"epoch": self._epoch, "done": self._done, "nodes": self._total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to a saved cursor.

        Raises:
            CheckpointError: the state is of another part or graph.
        """
        if state.get("nodes") != self._total:
            raise CheckpointError(
                f"the checkpoint's part has {state.get('nodes')} nodes, this one {self._total}"
            )
        self._epoch, self._done = int(state["epoch"]), bool(state["done"])

    def explain(self) -> dict[str, Any]:
        """Return the sizes of the batch."""
        x, place = self._batch["x"], self._batch["place"]
        return {"own_nodes": len(x), "own_labelled": len(place), "labelled": self._total}

    def stats(self) -> dict[str, Any]:
        """Return the number of batches handed out."""
        return {"batches": self._handed_out}


class NodeTask(ABC):
    """What is learned of the labelled nodes of all processes.

    Args:
        model: called with (x, edge_index), gives a row a node.
        part: this process's part, to which the model is attached.
        seed: of the dropout, which is the same for a node on any number of processes.

    Attributes:
        proof: that the attached model computes what the plain one does.

    Raises:
        ConfigError: the model differs from the plain one on several processes.
    """

    def __init__(self, model: nn.Module, part: Part, seed: int = 0) -> None:
        self.proof: Proof = prove(model, part)
        self.model: nn.Module = distribute(model, part, self.proof.fast)
        self._seed = seed

    @abstractmethod
    def figures(self, out: Tensor, label: Tensor) -> dict[str, Tensor]:
        """Return sums over some nodes of the loss and of what else is watched."""

    def _means(self, batch: Batch) -> dict[str, Tensor]:
        epoch = int(batch["epoch"])
        with dropout_by_node(self._seed * 1_000_000_007 + epoch):
            out = self.model(batch["x"], None)[batch["place"]]
        count = max(1, len(batch["label"]))
        return {k: total / count for k, total in self.figures(out, batch["label"]).items()}

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean over own labelled nodes; 0 where there is none."""
        return self._means(batch)["loss"], {}

    def metrics(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return means over own labelled nodes."""
        return self._means(batch)

    def batch_size(self, batch: Batch) -> int:
        """Return the number of own labelled nodes."""
        return len(batch["label"])


class NodeClassification(NodeTask):
    """Cross-entropy of one class a node; the model gives logits."""

    def figures(self, out: Tensor, label: Tensor) -> dict[str, Tensor]:
        """Return sums of cross-entropy and hits."""
        loss = nn.functional.cross_entropy(out, label, reduction="sum")
        return {"loss": loss, "accuracy": (out.argmax(1) == label).sum()}


class NodeLabelling(NodeTask):
    """Cross-entropy of several labels a node; the model gives a logit a label."""

    def figures(self, out: Tensor, label: Tensor) -> dict[str, Tensor]:
        """Return sums over nodes of means over labels: cross-entropy and hits."""
        loss = nn.functional.binary_cross_entropy_with_logits(
            out, label.to(out.dtype), reduction="none"
        )
        return {"loss": loss.mean(1).sum(), "accuracy": ((out > 0) == label).double().mean(1).sum()}


class NodeRegression(NodeTask):
    """Squared error of values, in units of their deviation.

    Args:
        model, part, seed: as for `NodeTask`; the model gives values less `mean` over `deviation`.
        moments: mean and deviation of each value, both shape (D,).
    """

    def __init__(
        self, model: nn.Module, part: Part, seed: int = 0, *, moments: tuple[Any, Any]
    ) -> None:
        super().__init__(model, part, seed)
        self._mean, deviation = (torch.as_tensor(m) for m in moments)
        self._deviation = torch.where(deviation == 0, 1.0, deviation)

    def figures(self, out: Tensor, label: Tensor) -> dict[str, Tensor]:
        """Return sums over nodes of the mean squared error, scaled, and absolute error."""
        deviation = self._deviation.to(out)
        error = out - (label.to(out.dtype) - self._mean.to(out)) / deviation
        return {
            "loss": error.square().mean(1).sum(),
            "absolute_error": (error.abs() * deviation).mean(1).sum(),
        }


def task_of(
    target: TargetName, model: nn.Module, part: Part, seed: int, moments: Any = None
) -> NodeTask:
    """Return the task of a target."""
    if target == "values":
        return NodeRegression(model, part, seed, moments=moments)
    return {"classes": NodeClassification, "labels": NodeLabelling}[target](model, part, seed)

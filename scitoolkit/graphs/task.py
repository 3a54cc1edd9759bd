"""Tasks and loader of node prediction; the batch is this process's part of the graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import CheckpointError
from scitoolkit.graphs.adapter import dropout_by_node
from scitoolkit.graphs.losses import class_sums, label_sums, value_sums
from scitoolkit.graphs.part import Part
from scitoolkit.graphs.proof import Proof, prove
from scitoolkit.graphs.targets import TargetName


class PartLoader:
    """Loader with one batch per epoch: features, and indices and labels of a split's local nodes.

    Args:
        x: features of local nodes, shape (n_own, F).
        nodes: numbers of local nodes, shape (n_own,).
        labels: labels of all nodes of the graph, as `Graph.labels`.
        wanted: node numbers of the split (train, validation or test) in the whole graph.
    """

    def __init__(self, x: Tensor, nodes: Tensor, labels: np.ndarray, wanted: np.ndarray) -> None:
        own = nodes.numpy()
        place = np.flatnonzero(np.isin(own, wanted))
        self._set(x, place, labels[own[place]], len(wanted))

    @classmethod
    def of_places(cls, x: Tensor, place: np.ndarray, label: np.ndarray, total: int) -> PartLoader:
        """Return the loader of a split of which only local nodes are known.

        Args:
            x: features of local nodes, shape (n_own, F).
            place: indices of the split's nodes among the local nodes, shape (n,).
            label: their labels, shape (n,) or (n, outputs).
            total: number of nodes of the split on all processes.
        """
        loader = cls.__new__(cls)
        loader._set(x, place, label, total)
        return loader

    def _set(self, x: Tensor, place: np.ndarray, label: np.ndarray, total: int) -> None:
        self._batch: dict[str, Tensor] = {
            "x": x,
            "place": torch.from_numpy(place),
            # Cross-entropy reads classes as integers, all other losses real numbers.
            "label": torch.from_numpy(label.astype(np.int64 if label.ndim == 1 else np.float32)),
        }
        self._total = total
        self._epoch, self._done = 0, False
        self._handed_out = 0

    def __len__(self) -> int:
        """Return 1, the number of batches per epoch."""
        return 1

    def set_epoch(self, epoch: int) -> None:
        """Move to the start of an epoch."""
        self._epoch, self._done = epoch, False

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batch, unless it was already yielded in this epoch."""
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
            CheckpointError: the number of nodes differs.
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
    """Base class of tasks on the labelled nodes of all processes.

    Args:
        model: called with (x, edge_index), returns one row per node.
        part: this process's part, to which the model is attached.
        seed: seed of the dropout, whose masks do not depend on the number of processes.

    Attributes:
        proof: result of the equivalence check with the plain model.

    Raises:
        ConfigError: the model differs from the plain one on several processes.
    """

    def __init__(self, model: nn.Module, part: Part, seed: int = 0) -> None:
        self.proof: Proof = prove(model, part)
        self.model: nn.Module = self.proof.attach(model, part)
        self._seed = seed

    @abstractmethod
    def figures(self, out: Tensor, label: Tensor) -> dict[str, Tensor]:
        """Return sums over nodes of the loss and of other metrics."""

    def _means(self, batch: Batch) -> dict[str, Tensor]:
        epoch = int(batch["epoch"])
        with dropout_by_node(self._seed * 1_000_000_007 + epoch):
            out = self.model(batch["x"], None)[batch["place"]]
        # The strategy weights the means of ranks by `batch_size`, so that they become the mean over
        # all labelled nodes; a rank without any adds 0 with weight 0.
        count = max(1, len(batch["label"]))
        return {k: total / count for k, total in self.figures(out, batch["label"]).items()}

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean loss over local labelled nodes; 0 if there are none."""
        return self._means(batch)["loss"], {}

    def metrics(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return means over local labelled nodes."""
        return self._means(batch)

    def batch_size(self, batch: Batch) -> int:
        """Return the number of local labelled nodes."""
        return len(batch["label"])


class NodeClassification(NodeTask):
    """Classification with cross-entropy; the model returns logits.

    Args:
        model, part, seed: as for `NodeTask`.
        weights: factor of each class in the loss, shape (classes,); None for 1.
    """

    def __init__(
        self, model: nn.Module, part: Part, seed: int = 0, *, weights: Tensor | None = None
    ) -> None:
        super().__init__(model, part, seed)
        self._weights = weights

    def figures(self, out: Tensor, label: Tensor) -> dict[str, Tensor]:
        """Return sums of weighted cross-entropy and correct predictions."""
        return class_sums(out, label, self._weights)


class NodeLabelling(NodeTask):
    """Multi-label classification with binary cross-entropy; the model returns logits."""

    def figures(self, out: Tensor, label: Tensor) -> dict[str, Tensor]:
        """Return sums over nodes of label means of cross-entropy and correct predictions."""
        return label_sums(out, label)


class NodeRegression(NodeTask):
    """Regression with squared error of standardised values.

    Args:
        model, part, seed: as for `NodeTask`; the model returns standardised values.
        moments: mean and standard deviation of each value, both shape (D,).
    """

    def __init__(
        self, model: nn.Module, part: Part, seed: int = 0, *, moments: tuple[Any, Any]
    ) -> None:
        super().__init__(model, part, seed)
        self._moments = tuple(torch.as_tensor(m) for m in moments)

    def figures(self, out: Tensor, label: Tensor) -> dict[str, Tensor]:
        """Return sums over nodes of the standardised squared error and of the absolute error."""
        return value_sums(out, label, *self._moments)


def task_of(
    target: TargetName,
    model: nn.Module,
    part: Part,
    seed: int,
    moments: Any = None,
    weights: Tensor | None = None,
) -> NodeTask:
    """Return the task of a target, with moments of values or weights of classes."""
    if target == "values":
        return NodeRegression(model, part, seed, moments=moments)
    if target == "labels":
        return NodeLabelling(model, part, seed)
    return NodeClassification(model, part, seed, weights=weights)

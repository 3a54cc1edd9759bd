"""Classification of nodes for the common trainer: the batch is this process's part of the graph."""

from __future__ import annotations

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


class PartLoader:
    """One batch an epoch: own features, and places and labels of own nodes of a part.

    Args:
        x: features of own nodes, shape (n_own, F).
        nodes: numbers of own nodes, shape (n_own,).
        labels: class of every node of the graph, shape (N,).
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
            label: their labels, shape (n,).
            total: nodes of the part on all processes.
        """
        loader = cls.__new__(cls)
        loader._set(x, place, label, total)
        return loader

    def _set(self, x: Tensor, place: np.ndarray, label: np.ndarray, total: int) -> None:
        self._batch: dict[str, Tensor] = {
            "x": x,
            "place": torch.from_numpy(place),
            "label": torch.from_numpy(label.astype(np.int64)),
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


class NodeClassification:
    """Cross-entropy over the labelled nodes of all processes.

    Args:
        model: called with (x, edge_index), gives logits.
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

    def _logits(self, batch: Batch) -> Tensor:
        epoch = int(batch["epoch"])
        with dropout_by_node(self._seed * 1_000_000_007 + epoch):
            return self.model(batch["x"], None)[batch["place"]]

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Return the mean over own labelled nodes; 0 where there is none."""
        return _mean_cross_entropy(self._logits(batch), batch["label"]), {}

    def metrics(self, batch: Batch) -> Mapping[str, Tensor | float]:
        """Return loss and accuracy over own labelled nodes."""
        logits = self._logits(batch)
        hits = (logits.argmax(1) == batch["label"]).sum()
        return {
            "loss": _mean_cross_entropy(logits, batch["label"]),
            "accuracy": hits / max(1, len(logits)),
        }

    def batch_size(self, batch: Batch) -> int:
        """Return the number of own labelled nodes."""
        return len(batch["label"])


def _mean_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    total = nn.functional.cross_entropy(logits, label, reduction="sum")
    return total / max(1, len(label))

"""Batches of configurations: neighbour lists made once a configuration, within a memory budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import CheckpointError, ConfigError
from scitoolkit.io.atoms import AtomsCollection
from scitoolkit.io.loader import EpochOrder, rank_share
from scitoolkit.potentials.graph import collate, configuration_graph

CACHE_BYTES = 2**30


class GraphSet:
    """Configurations as graphs; read and listed when first asked for, then kept if there is room.

    Args:
        frames: where the configurations come from.
        indices: which of them.
        type_map: the model's species.
        cutoff: Å.
        cache_bytes: memory for kept graphs.
    """

    listed: int

    def __init__(
        self, frames: AtomsCollection, indices: Sequence[int], type_map: Sequence[str],
        cutoff: float, cache_bytes: int = CACHE_BYTES,
    ) -> None:  # fmt: skip
        self._frames, self._indices = frames, [int(i) for i in indices]
        self._type_map, self._cutoff = list(type_map), cutoff
        self._kept: dict[int, Batch] = {}
        self._room, self.listed = cache_bytes, 0

    def __len__(self) -> int:
        """Return the number of configurations."""
        return len(self._indices)

    def __getitem__(self, number: int) -> Batch:
        """Return the graph of one configuration."""
        if number in self._kept:
            return self._kept[number]
        frame = self._frames[self._indices[number]]
        graph = configuration_graph(frame, self._type_map, self._cutoff)
        self.listed += 1
        size = sum(t.nbytes for t in graph.values())
        if size <= self._room:
            self._kept[number] = graph
            self._room -= size
        return graph

    def spread(self, most: int) -> Iterator[Batch]:
        """Yield at most `most` graphs, evenly spread over the set."""
        for number in np.unique(np.linspace(0, len(self) - 1, min(most, len(self))).astype(int)):
            yield self[int(number)]


class GraphLoader:
    """Batches of configurations that keep the Loader contract.

    Args:
        graphs: the set.
        batch_size: configurations per global batch.
        seed: of the order.
        shuffle: a new order every epoch.
        rank: this process. world_size: number of processes; must divide `batch_size`.

    Raises:
        ConfigError: it does not.
    """

    def __init__(
        self, graphs: GraphSet, batch_size: int, *, seed: int = 0, shuffle: bool = True,
        rank: int = 0, world_size: int = 1,
    ) -> None:  # fmt: skip
        if batch_size % world_size:
            raise ConfigError(
                f"training.batch_size {batch_size} is not divisible by {world_size} processes",
                fix=f"training.batch_size={-(-batch_size // world_size) * world_size}",
            )
        self._graphs, self._rank, self._world = graphs, rank, world_size
        self._order = EpochOrder(len(graphs), batch_size, seed, shuffle)
        self._epoch, self._cursor, self._handed_out = 0, 0, 0

    def __len__(self) -> int:
        """Return the number of global batches in an epoch."""
        return self._order.num_batches

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the rest of the epoch."""
        permutation = self._order.permutation(self._epoch)
        while self._cursor < len(self):
            share = self._order.cut(permutation, self._cursor)
            mine, valid = rank_share(share, self._rank, self._world)
            batch = collate([self._graphs[int(i)] for i in mine])
            if valid is not None:
                batch["num_valid"] = torch.tensor(valid)
            self._cursor += 1
            self._handed_out += 1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Move to the first batch of an epoch."""
        self._epoch, self._cursor = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor."""
        order = self._order
        return {
            "epoch": self._epoch, "cursor": self._cursor, "seed": order.seed,
            "samples": order.num_samples, "batch_size": order.batch_size,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to a saved cursor.

        Raises:
            CheckpointError: it was saved over other data, batches or seed.
        """
        own = self.state_dict()
        for key in ("seed", "samples", "batch_size"):
            if state[key] != own[key]:
                raise CheckpointError(f"loader {key} was {state[key]}, it is {own[key]} now")
        self._epoch, self._cursor = int(state["epoch"]), int(state["cursor"])

    def explain(self) -> dict[str, Any]:
        """Return samples and batches."""
        return {"samples": len(self._graphs), "batches": len(self)}

    def stats(self) -> dict[str, Any]:
        """Return batches handed out and neighbour lists made."""
        return {"batches": self._handed_out, "neighbour_lists": self._graphs.listed}

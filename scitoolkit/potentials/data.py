"""Batches of configurations as graphs, whose neighbour lists are cached within a memory budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from scitoolkit.core.contracts import Batch
from scitoolkit.io.atoms import AtomsCollection, Configuration
from scitoolkit.io.loader import EpochOrder, rank_share
from scitoolkit.io.loader.epoch_loader import EpochLoader
from scitoolkit.potentials.graph import collate, configuration_graph

CACHE_BYTES = 2**30


class GraphSet:
    """Configurations as graphs, built on first access and cached while memory is left.

    Args:
        frames: source of the configurations.
        indices: of the configurations in `frames`.
        type_map: the model's species.
        cutoff: Å.
        cache_bytes: memory for cached graphs.

    Attributes:
        listed: number of neighbour lists built so far.
    """

    listed: int

    def __init__(
        self,
        frames: AtomsCollection,
        indices: Sequence[int],
        type_map: Sequence[str],
        cutoff: float,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
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
        graph = configuration_graph(self.configuration(number), self._type_map, self._cutoff)
        self.listed += 1
        size = sum(t.nbytes for t in graph.values())
        if size <= self._room:
            self._kept[number] = graph
            self._room -= size
        return graph

    def configuration(self, number: int) -> Configuration:
        """Return one configuration, in eV and Å."""
        return self._frames[self._indices[number]]

    def spread(self, most: int) -> Iterator[Batch]:
        """Yield at most `most` graphs, evenly spread over the set."""
        for number in np.unique(np.linspace(0, len(self) - 1, min(most, len(self))).astype(int)):
            yield self[int(number)]


class GraphLoader(EpochLoader):
    """Loader of batches of configurations.

    Args:
        graphs: the configurations.
        batch_size: configurations per global batch.
        seed: of the order.
        shuffle: whether every epoch has another order.
        rank: of this process.
        world_size: number of processes.

    Raises:
        ConfigError: `world_size` does not divide `batch_size`.
    """

    def __init__(
        self,
        graphs: GraphSet,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(
            len(graphs),
            batch_size,
            seed=seed,
            rank=rank,
            world_size=world_size,
            where="training.batch_size",
        )
        self._graphs = graphs
        self._shuffled = EpochOrder(len(graphs), batch_size, seed, shuffle)

    def _order(self, epoch: int) -> np.ndarray:
        return self._shuffled.permutation(epoch)

    def _batch(self, chosen: np.ndarray) -> Batch:
        mine, valid = rank_share(chosen, self._rank, self._world)
        batch = collate([self._graphs[int(i)] for i in mine])
        if valid is not None:
            batch["num_valid"] = torch.tensor(valid)
        return batch

    def stats(self) -> dict[str, Any]:
        """Return the numbers of batches handed out and of neighbour lists built."""
        return {**super().stats(), "neighbour_lists": self._graphs.listed}

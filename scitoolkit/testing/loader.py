"""Contract suite of loaders, to inherit in tests.

Example:
    class TestMyLoader(LoaderContract):
        def make(self, rank=0, world=1):
            return MyLoader(..., rank=rank, world_size=world)

        def samples(self, batch):
            return batch["x"][:, 0].tolist()
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import ClassVar

import pytest
import torch

from scitoolkit.core.contracts import Batch, Loader


class LoaderContract:
    """Contract suite of loaders; override `make` and `samples`.

    Attributes:
        worlds: world sizes to test.
        least: minimum number of batches per epoch; 1 for loaders of one batch, such as a whole
            graph.
    """

    worlds: ClassVar[tuple[int, ...]] = (1, 2)
    least: ClassVar[int] = 3

    def make(self, rank: int = 0, world: int = 1) -> Loader:
        """Return a new loader of a rank with at least `least` batches per epoch."""
        raise NotImplementedError

    def samples(self, batch: Batch) -> list[Hashable]:
        """Return identifiers of the samples of a batch, in order."""
        raise NotImplementedError

    def test_it_is_a_loader_of_its_length(self) -> None:
        """`len` counts the batches of an epoch."""
        loader = self.make()
        assert isinstance(loader, Loader)
        assert len(list(loader)) == len(loader) >= self.least

    @pytest.mark.parametrize("epoch", [0, 3])
    def test_an_epoch_is_the_same_whenever_it_is_read(self, epoch: int) -> None:
        """Batches depend on the epoch alone, not on earlier reads."""
        first, second = self.make(), self.make()
        list(second)
        for loader in (first, second):
            loader.set_epoch(epoch)
        assert _equal(list(first), list(second))

    def test_a_saved_cursor_continues_the_epoch(self) -> None:
        """The state counts the yielded batches at every step and is small JSON."""
        whole = self.make()
        whole.set_epoch(1)
        batches = list(whole)
        for step in range(len(batches) + 1):
            first, second = self.make(), self.make()
            first.set_epoch(1)
            iterator = iter(first)
            for _ in range(step):
                next(iterator)
            text = json.dumps(first.state_dict())
            assert len(text) < 1024
            second.load_state_dict(json.loads(text))
            assert _equal(list(second), batches[step:]), step

    def test_ranks_share_every_batch(self) -> None:
        """The combined samples of the ranks equal those of one process, batch by batch."""
        for world in self.worlds:
            ranks = [self.make(rank, world) for rank in range(world)]
            for whole, *parts in zip(self.make(), *ranks, strict=True):
                together = [s for part in parts for s in self._valid(part)]
                assert sorted(map(repr, together)) == sorted(map(repr, self._valid(whole)))

    def test_a_cursor_moves_to_another_number_of_ranks(self) -> None:
        """A state of one process continues on several."""
        for world in self.worlds:
            first = self.make()
            iterator = iter(first)
            next(iterator)
            state = first.state_dict()
            ranks = [self.make(rank, world) for rank in range(world)]
            for rank in ranks:
                rank.load_state_dict(state)
            for whole, *parts in zip(iterator, *ranks, strict=True):
                together = [s for part in parts for s in self._valid(part)]
                assert sorted(map(repr, together)) == sorted(map(repr, self._valid(whole)))

    def test_explain_and_stats(self) -> None:
        """Both are JSON, and `stats` counts the yielded batches."""
        loader = self.make()
        json.dumps(loader.explain())
        count = len(list(loader))
        assert loader.stats()["batches"] == count
        json.dumps(loader.stats())

    def _valid(self, batch: Batch) -> list[Hashable]:
        samples = self.samples(batch)
        return samples[: int(batch.get("num_valid", torch.tensor(len(samples))))]


def _equal(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
        for a, b in zip(first, second, strict=True)
    )

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from scitoolkit.core.contracts import Loader
from scitoolkit.testing.loaders import TensorLoader


def loader(samples: int, batch: int, rank: int = 0, world: int = 1) -> TensorLoader:
    tensors = {"x": torch.arange(samples)}
    return TensorLoader(tensors, batch, seed=1, rank=rank, world_size=world)


def valid(batch) -> list[int]:
    return batch["x"].tolist()[: int(batch.get("num_valid", len(batch["x"])))]


def test_it_is_a_loader():
    assert isinstance(loader(4, 2), Loader)


@given(st.integers(1, 40), st.integers(1, 5), st.sampled_from([1, 2, 4]), st.integers(0, 3))
def test_ranks_share_every_global_batch(samples, share, world, epoch):
    whole = loader(samples, share * world)
    ranks = [loader(samples, share * world, rank, world) for rank in range(world)]
    for each in (whole, *ranks):
        each.set_epoch(epoch)
    seen: list[int] = []
    for batch, *parts in zip(whole, *ranks, strict=True):
        together = [sample for part in parts for sample in valid(part)]
        assert sorted(together) == sorted(valid(batch))
        seen += together
    assert sorted(seen) == list(range(samples))


@given(st.integers(1, 30), st.integers(1, 7), st.data())
def test_a_saved_cursor_continues_the_epoch(samples, batch, data):
    whole = [valid(b) for b in loader(samples, batch)]
    step = data.draw(st.integers(0, len(whole)))
    first = loader(samples, batch)
    iterator = iter(first)
    for _ in range(step):
        next(iterator)
    second = loader(samples, batch)
    second.load_state_dict(first.state_dict())
    assert [valid(b) for b in second] == whole[step:]

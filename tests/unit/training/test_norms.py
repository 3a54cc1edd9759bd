"""Norms of whole tensors: of one process, and of ranks that hold parts beside whole tensors."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard, init_device_mesh

from scitoolkit.training.optim.layerwise import Lars
from scitoolkit.training.optim.norms import whole_norms


def test_norms_of_one_process_are_those_of_torch():
    tensors = [torch.randn(4, 3), torch.randn(5), torch.zeros(0)]
    found, twice = whole_norms(tensors, [2 * t for t in tensors], like=tensors)
    torch.testing.assert_close(found, torch.stack([t.norm() for t in tensors]))
    torch.testing.assert_close(twice, 2 * found)


def test_a_tensor_that_every_rank_holds_whole_counts_once(lone_group, monkeypatch):
    mesh = init_device_mesh("cpu", (1,))
    split = DTensor.from_local(torch.tensor([3.0]), mesh, [Shard(0)])
    whole = torch.tensor([6.0, 8.0])
    # Two ranks, played by one: each has the same part, and the sum over the ranks doubles.
    monkeypatch.setattr(type(mesh), "size", lambda self, *a: 2)
    monkeypatch.setattr(dist, "all_reduce", lambda squares, group: squares.mul_(2))
    (found,) = whole_norms([torch.tensor([3.0]), whole], like=[split, whole])
    torch.testing.assert_close(found, torch.tensor([18.0**0.5, 10.0]))
    assert not isinstance(found, DTensor)


@pytest.mark.parametrize("size", [1e19, 1e20, 1e30])
def test_norms_of_large_gradients_are_finite(size):
    (found,) = whole_norms([size * torch.ones(4, 4)], like=[torch.ones(4, 4)])
    torch.testing.assert_close(found, torch.tensor([4 * size]))


def test_lars_scales_the_steps_of_large_gradients():
    weights = [nn.Parameter(torch.ones(4, 4)) for _ in range(2)]
    for weight, size in zip(weights, (1.0, 1e20), strict=True):
        weight.grad = size * torch.ones(4, 4)
        Lars([weight], lr=1.0, trust=0.1).step()
    torch.testing.assert_close(*weights)
    torch.testing.assert_close(weights[0].data, 0.9 * torch.ones(4, 4))

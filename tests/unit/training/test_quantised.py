"""Codes of few bits, entropy-coded sums and counted traffic against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist

from scitoolkit.core.errors import DataError
from scitoolkit.training.exchange.coded import SumMessage
from scitoolkit.training.exchange.quantised import decoded, encoded, turned
from scitoolkit.training.exchange.shards import ShardBuckets
from scitoolkit.training.exchange.sums import FullShards
from scitoolkit.training.traffic import TrafficCounter


@pytest.mark.parametrize(("bits", "group", "top"), [(4, 128, 7), (8, 512, 127)])
def test_codes_are_within_half_a_step_of_each_group(bits, group, top):
    x = torch.randn(3, 1056) * torch.logspace(-30, 4, 1056)
    x[1, :group] = 0
    data = encoded(x, bits, group)
    assert data.shape[1] == 1056 * bits // 8 + 4 * -(-1056 // group)
    y = decoded(data, 1056, bits, group)
    for begin in range(0, 1056, group):
        part = slice(begin, begin + group)
        step = x[:, part].abs().amax(1, keepdim=True) / top
        assert ((x[:, part] - y[:, part]).abs() <= 0.5001 * step).all()
    assert (y[1, :group] == 0).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_group_with_nan_or_inf_is_nan_and_its_neighbour_is_not(bad):
    x = torch.ones(1, 64)
    x[0, 3] = bad
    y = decoded(encoded(x, 4, 32), 64, 4, 32)
    assert y[0, :32].isnan().all()
    assert (y[0, 32:] == 1).all()


def test_the_transform_is_its_own_inverse():
    x = torch.randn(2, 96)
    torch.testing.assert_close(turned(turned(x)), x)
    torch.testing.assert_close(turned(x).norm(), x.norm())


def test_coded_sums_keep_their_bound_and_outliers():
    values = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    values[[7, 4999]] = 1e6, -1e30  # far beyond the integers of a byte
    values[2048:3072] = 0
    message = SumMessage.of(values, 0.01, 3.0)
    read = SumMessage.read(message.data, 5000)
    assert (read.values == message.values).all()
    for begin in range(0, 5000, 1024):
        block = slice(begin, begin + 1024)
        rms = np.sqrt((values[block].astype("f8") ** 2).sum() / 1024)
        assert np.abs(read.values[block] - values[block]).max() <= 0.01001 * rms
    assert read.exact == 3.0
    assert read.error == pytest.approx(((message.values - values).astype("f8") ** 2).sum())
    values[5] = np.nan
    assert np.array_equal(
        SumMessage.read(SumMessage.of(values, 0.1, 0.0).data, 5000).values, values, equal_nan=True
    )


def test_a_damaged_message_is_refused():
    data = SumMessage.of(np.ones(2000, np.float32), 0.1, 0.0).data
    for broken in (data[:10], data[:-3]):
        with pytest.raises(DataError, match="damaged"):
            SumMessage.read(broken, 2000)


def test_parts_of_one_rank_are_the_parameters(lone_group):
    named = [
        ("matrix", torch.nn.Parameter(torch.ones(3, 2))),
        ("scalar", torch.nn.Parameter(torch.tensor(2.0))),
    ]
    buckets = ShardBuckets(named, FullShards(), 8.0, keep=True)
    for _ in range(2):
        (named[0][1].sum() * named[1][1]).backward()
        assert not buckets.finish(failed=False)
        assert buckets.parts[named[0][1]].grad.full_tensor().tolist() == [[2.0] * 2] * 3
        assert buckets.parts[named[1][1]].grad.full_tensor().tolist() == [6.0]
    with torch.no_grad():
        buckets.parts[named[1][1]].to_local().fill_(5.0)
    buckets.publish()
    assert named[1][1].item() == 5.0


def test_traffic_is_what_comes_from_other_ranks(lone_group, monkeypatch):
    counter, x = TrafficCounter(2), torch.zeros(8)
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: [0, 1, 2, 3])
    with counter.counting():
        dist.all_reduce(x)
        dist.broadcast(x, src=0)
        dist.all_to_all_single(x.clone(), x, async_op=True).wait()
    dist.all_reduce(x)  # not counted
    found = counter.as_dict()
    times = [traffic.pop("seconds") for traffic in found.values()]
    assert found["all_reduce"] == {
        "words": 12.0,
        "bytes": 48.0,
        "bytes_between_nodes": 24.0,
        "messages": 6,
        "calls": 1,
    }
    assert min(counter.blocked) > 0
    assert sum(counter.blocked) == pytest.approx(sum(times))
    assert found["broadcast"]["bytes"] == 0
    assert found["all_to_all_single"]["bytes"] == 24.0
    assert found["all_to_all_single"]["bytes_between_nodes"] == 16.0
    assert counter.total().calls == 3

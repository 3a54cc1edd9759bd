"""Offloading and mixed precision of sharded trainings: the same bits, or a refusal."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from training_worker import Regression

from scitoolkit.core.errors import ConfigError
from scitoolkit.training import TrainingConfig
from scitoolkit.training.exchange.config import Full, Sdp4Bit
from scitoolkit.training.sharding import local
from scitoolkit.training.strategies.config import Sharded, ShardingConfig
from scitoolkit.training.strategies.optimizer_shards import OptimizerShardsStrategy
from scitoolkit.training.strategies.sharded import ShardedStrategy

CPU = torch.device("cpu")
BF16 = {"gather_precision": "bf16"}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({**BF16, "precision": "bf16"}, "only read by strategy sharded at stage 3"),
        (
            {**BF16, "strategy": "ddp", "precision": "bf16"},
            "only read by strategy sharded at stage 3",
        ),
        (
            {**BF16, "strategy": "sharded", "sharding": {"stage": 2}, "precision": "bf16"},
            "only read by strategy sharded at stage 3",
        ),
        ({**BF16, "strategy": "sharded"}, "needs precision bf16"),
        ({**BF16, "strategy": "sharded", "precision": "fp16"}, "needs precision bf16"),
        (
            {"strategy": "sharded", "sharding": {"offload": True}, "device": "cpu"},
            "needs a GPU to offload from",
        ),
        (
            {"strategy": "sharded", "sharding": {"offload": True, "stage": 1}, "pruning": {}},
            "remove offload",
        ),
        ({"strategy": "ddp", "sharding": {"offload": True}}, "only read by strategy sharded"),
    ],
)
def test_impossible_combinations_are_refused_by_name(settings, told):
    with pytest.raises(ConfigError, match=told):
        TrainingConfig(**settings)


@pytest.mark.parametrize("stage", [1, 3])
def test_offloading_from_the_cpu_is_refused_where_the_device_is_found(lone_group, stage):
    sharding = ShardingConfig(stage=stage, offload=True)
    with pytest.raises(ConfigError, match="whose device is the CPU"):
        Sharded(sharding=sharding).build(CPU)


@pytest.mark.parametrize(
    ("layer", "told"),
    [(nn.BatchNorm1d(3), "has running statistics"), (nn.Linear(3, 1).double(), "float64")],
)
def test_layers_that_are_not_gathered_in_bfloat16_are_named(lone_group, layer, told):
    strategy = ShardedStrategy(CPU, bf16=True)
    with pytest.raises(ConfigError, match=rf"^training.gather_precision: 0 .*{told}"):
        strategy.prepare(nn.Sequential(layer), seed=0)


@pytest.mark.parametrize("exchange", [Full(), Sdp4Bit()], ids=["full", "sdp4bit"])
def test_parts_that_are_kept_elsewhere_train_to_the_same_bits(lone_group, exchange):
    """The copies of an offloaded training, between two memories that are both the CPU's."""
    ends = []
    for offload in (False, True):
        task = Regression()
        strategy = OptimizerShardsStrategy(CPU, keeps_buckets=True, offload=offload)
        model = strategy.prepare(task.model, seed=0)
        named = list(model.named_parameters())
        moved = strategy.attach(named, exchange)
        optimizer = torch.optim.AdamW([p for _, p in moved], lr=0.05)
        for step in range(4):
            for parameter in [p for _, p in [*named, *moved]]:
                parameter.grad = None
            x = torch.randn(6, 3, generator=torch.Generator().manual_seed(step))
            strategy.begin_exchange()
            model(x).square().mean().backward()
            assert not strategy.reduce_gradients(failed=False)
            optimizer.step()
            strategy.publish()
        shared = [
            local(part).data_ptr() == parameter.data_ptr()
            for (_, part), (_, parameter) in zip(moved, named, strict=True)
        ]
        assert any(shared) == (exchange == Full() and not offload)
        ends.append([p.detach().clone() for _, p in named])
    assert all(torch.equal(one, two) for one, two in zip(*ends, strict=True))

"""The optimizers, exchanges, strategies, loggers and loaders of training keep their contracts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from scitoolkit.graphs.mesh_task import FlowLoader
from scitoolkit.graphs.task import PartLoader
from scitoolkit.io.loader import ArraySource, BatchLoader
from scitoolkit.testing import (
    ActivationStoreContract,
    ExchangeContract,
    LoaderContract,
    LoggerContract,
    OptimizerContract,
    TrainingStrategyContract,
)
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training.batches import DataLoaderBatches
from scitoolkit.training.exchange.config import exchanges
from scitoolkit.training.loggers import loggers
from scitoolkit.training.memory import offload_places
from scitoolkit.training.memory.config import MemoryConfig, activation_stores
from scitoolkit.training.optim.optimizers import optimizers
from scitoolkit.training.strategies.config import Sharded, ShardingConfig, training_strategies

SAMPLES = torch.arange(29)


class TestOptimizers(OptimizerContract):
    @pytest.fixture(params=optimizers.names())
    def optimizer(self, request):
        return optimizers.get(request.param)()


@pytest.mark.multiproc
@pytest.mark.usefixtures("warm_ranks")
class TestExchanges(ExchangeContract):
    @pytest.fixture(params=exchanges.names())
    def exchange(self, request):
        return exchanges.get(request.param)()


@pytest.mark.multiproc
@pytest.mark.usefixtures("warm_ranks")
class TestStrategies(TrainingStrategyContract):
    @pytest.fixture(params=[n for n in training_strategies.names() if n != "sharded"])
    def strategy(self, request):
        return training_strategies.get(request.param)()


@pytest.mark.multiproc
@pytest.mark.usefixtures("warm_ranks")
class TestOptimizerShards(TrainingStrategyContract):
    @pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), 2])
    def strategy(self, request):
        return Sharded(sharding=ShardingConfig(stage=request.param))


@pytest.mark.multiproc
@pytest.mark.usefixtures("warm_ranks")
class TestSharded(TrainingStrategyContract):
    conditional: ClassVar[bool] = False

    @pytest.fixture(params=[pytest.param(None, marks=pytest.mark.slow), 1e-4])
    def strategy(self, request):
        return Sharded(sharding=ShardingConfig(group_mib=request.param))


class TestActivationStores(ActivationStoreContract):
    @pytest.fixture(params=activation_stores.names())
    def config(self, request, tmp_path, monkeypatch):
        # The temporary folder of a test may be in memory, which is refused.
        monkeypatch.setattr(offload_places, "file_system", lambda folder: "ext4")
        folder = {"folder": tmp_path} if request.param == "offload" else {}
        return MemoryConfig(activations=request.param, **folder)


class TestLoggers(LoggerContract):
    @pytest.fixture(params=loggers.names())
    def logger(self, request):
        member = loggers.get(request.param)
        if member.unavailable():
            pytest.skip(member.unavailable())
        return member()


class TestTensorLoader(LoaderContract):
    def make(self, rank=0, world=1):
        return TensorLoader({"x": SAMPLES}, 4, seed=1, rank=rank, world_size=world)

    def samples(self, batch):
        return batch["x"].tolist()


class TestDataLoader(LoaderContract):
    def make(self, rank=0, world=1):
        rows = [{"x": value} for value in SAMPLES]
        return DataLoaderBatches(
            DataLoader(rows, batch_size=4, shuffle=True), seed=1, rank=rank, world=world
        )

    def samples(self, batch):
        return batch["x"].tolist()


class TestBatchLoader(LoaderContract):
    def make(self, rank=0, world=1):
        source = ArraySource({"x": SAMPLES.numpy()})
        return BatchLoader(source, 4, seed=1, rank=rank, world_size=world)

    def samples(self, batch):
        return batch["x"].tolist()


class TestPartLoader(LoaderContract):
    """One batch, the whole graph: ranks share its nodes and not the samples of batches."""

    worlds: ClassVar[tuple[int, ...]] = (1,)
    least: ClassVar[int] = 1

    def make(self, rank=0, world=1):
        nodes = torch.arange(6)
        return PartLoader(torch.eye(6), nodes, np.arange(6), np.array([1, 4]))

    def samples(self, batch):
        return batch["label"].tolist()


class TestFlowLoader(LoaderContract):
    worlds: ClassVar[tuple[int, ...]] = (1,)

    def make(self, rank=0, world=1):
        return FlowLoader(np.arange(7), 2, seed=1)

    def samples(self, batch):
        return batch["flow"].tolist()

"""Parameters and buffers of any strides train on several ranks, where NCCL wants them dense."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from as_nccl import AsNccl
from torch import nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.training.ranks.collectives import SumRows
from scitoolkit.training.ranks.communicator import ProcessGroup
from scitoolkit.training.strategies.optimizer_shards import OptimizerShardsStrategy
from scitoolkit.training.strategies.sharded import ShardedStrategy

CPU = torch.device("cpu")

SCRIPT = """
import sys
import torch
from torch import nn
from as_nccl import AsNccl
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Trainer, TrainingConfig, current_rank, world_size
from scitoolkit.training.processes import process_group
torch.set_num_threads(1)

class Net(nn.Module):
    def __init__(self, dense):
        super().__init__()
        torch.manual_seed(current_rank())  # rank 0's values count
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.up = nn.Linear(4, 5)
        self.down = nn.Parameter(torch.randn(5, 2))
        table = torch.randn(2, 2)
        if not dense:
            self.to(memory_format=torch.channels_last)
            self.down = nn.Parameter(self.down.detach().T.contiguous().T)
            table = table.T.contiguous().T
        self.register_buffer("table", table)
    def forward(self, x):
        x = self.norm(self.conv(x)).relu().mean((2, 3))
        return self.up(x).tanh() @ self.down @ self.table

class Task:
    def __init__(self, dense): self.model = Net(dense)
    def loss(self, b): return (self.model(b["x"]) - b["y"]).square().mean(), {}
    def metrics(self, b): return {"loss": self.loss(b)[0]}
    def batch_size(self, b): return len(b["x"])

generator = torch.Generator().manual_seed(1)
data = {"x": torch.randn(8, 3, 6, 5, generator=generator)}
data["y"] = data["x"].mean((2, 3))[:, :2]
for settings in eval(sys.argv[1]):
    ends = []
    config = TrainingConfig(steps=3, batch_size=4, progress=False, device="cpu",
                            timeout_seconds=60, **settings)
    with process_group(config), AsNccl() as strict:
        for dense in (True, False):
            task = Task(dense)
            strides = {n: t.stride() for n, t in task.model.state_dict().items()}
            Trainer(task, config).fit(TensorLoader(data, 4, rank=current_rank(), world_size=2))
            state = task.model.state_dict()
            assert {n: t.stride() for n, t in state.items()} == strides, settings
            ends.append(state)
    assert strict.count > 20, strict.count
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, rtol=1e-4, atol=1e-6)
"""


def test_two_ranks_train_strided_weights_with_the_collectives_of_nccl(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    every = [
        {"strategy": "ddp"},
        *({"strategy": "sharded", "sharding": {"stage": n}} for n in (1, 2, 3)),
    ]
    helpers = str(Path(__file__).resolve().parents[2] / "helpers")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    done = subprocess.run(
        [*command, "2", str(script), repr(every)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": ":".join([helpers, *sys.path])},
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_wrapper_without_the_demand_would_let_strided_tensors_pass(lone_group):
    with AsNccl(), pytest.raises(ValueError, match="contiguous"):
        dist.broadcast(torch.zeros(2, 3).T, src=0)


def test_rows_of_expanded_gradients_are_sent_as_they_are(lone_group):
    ranks = ProcessGroup()
    with AsNccl() as strict:
        for rows in (
            torch.ones(1).expand(4),
            torch.arange(8.0)[::2],
            torch.ones(1, 1).expand(4, 1),
        ):
            assert torch.equal(SumRows.apply(rows, ranks, (4,)), rows)
    assert strict.count == 3


def transposed_pair() -> nn.Module:
    model = nn.ModuleList([nn.Linear(3, 2), nn.Linear(2, 3)])
    model[1].weight = nn.Parameter(model[0].weight.detach().T)
    return model


@pytest.mark.parametrize(
    "strategy",
    [
        lambda: ShardedStrategy(CPU),
        lambda: OptimizerShardsStrategy(CPU, keeps_buckets=True),
        lambda: OptimizerShardsStrategy(CPU, keeps_buckets=False),
    ],
)
def test_weights_in_one_memory_are_named_before_they_come_apart(lone_group, strategy):
    with pytest.raises(ConfigError, match=r"0\.weight and 1\.weight"):
        strategy().prepare(transposed_pair(), seed=0)

"""What ranks must agree on: names of metrics, unreached parameters, the order of a DataLoader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from scitoolkit.training import Trainer, TrainingConfig

X = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(X, X.sin().sum(1, keepdim=True))

SCRIPT = """
import os, random, sys
import numpy as np, torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset
from scitoolkit.core.errors import DataError
from scitoolkit.training import Callback, Trainer, TrainingConfig
torch.set_num_threads(1)
RANK = int(os.environ["RANK"])
X = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(X, X.sum(1, keepdim=True))

class Net(nn.Module):
    def __init__(self):
        super().__init__(); torch.manual_seed(0)
        self.used, self.unused = nn.Linear(3, 1), nn.Linear(3, 3)
    def forward(self, x): return self.used(x)

class Task:
    def __init__(self): self.model, self.rows = Net(), []
    def loss(self, b):
        self.rows += b["0"][:, 0].tolist()
        return (self.model(b["0"]) - b["1"]).square().mean(), {"own" if RANK else "other": 1.0}
    def metrics(self, b):
        names = {"inlet": torch.tensor(100.0), "a": 3.0} if RANK else {"wall": torch.tensor(1.0)}
        return {"loss": (self.model(b["0"]) - b["1"]).square().mean(), **names}
    def batch_size(self, b): return len(b["0"])

class Seen(Callback):
    def __init__(self): self.validations = []
    def on_validation(self, trainer, values): self.validations.append(dict(values))

class Shuffled(Sampler):
    def __init__(self, how): self.how = how
    def __len__(self): return len(X)
    def __iter__(self):
        order = list(range(len(X)))
        if self.how == "python": random.shuffle(order)
        elif self.how == "numpy": order = np.random.permutation(len(X)).tolist()
        elif self.how == "rank" and RANK: order.reverse()
        return iter(order)

how, settings = sys.argv[1], eval(sys.argv[2])
task, seen = Task(), Seen()
before = task.model.unused.weight.detach().clone()
trainer = Trainer(task, TrainingConfig(epochs=2, batch_size=20, progress=False, timeout_seconds=30,
    optimizer={"name": "adamw", "lr": 1e-2}, log_every=1, **settings), callbacks=[seen])
try:
    trainer.fit(DataLoader(DATA, 20, sampler=Shuffled(how)), DataLoader(DATA, 20))
except DataError as error:
    assert how == "rank" and "order" in str(error), error
    sys.exit()
assert how != "rank"
assert torch.equal(task.model.unused.weight, before), "a parameter without gradient moved"
values = seen.validations[-1] if seen.validations else {}
if values:
    assert (values["wall"], values["inlet"], values["a"]) == (1.0, 100.0, 3.0), values
    assert values["loss"] < 30, values
threads = [open(f"/proc/self/task/{n}/comm").read() for n in os.listdir("/proc/self/task")]
assert not any("gloo" in name for name in threads), "threads that may abort the process at exit"
"""


@pytest.mark.parametrize(
    ("how", "settings"),
    [
        ("python", {}),
        ("numpy", {"strategy": "sharded", "sharding": {"stage": 1}}),
        ("torch", {"strategy": "sharded", "sharding": {"stage": 2}}),
        ("torch", {"strategy": "sharded", "sharding": {"stage": 3}}),
        ("rank", {}),
    ],
)
def test_two_ranks_agree(tmp_path: Path, how, settings):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    done = subprocess.run(
        [*command, "2", str(script), how, repr(settings)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


class Fit:
    def __init__(self, model):
        self.model = model

    def loss(self, batch):
        return (self.model(batch["0"]) - batch["1"]).square().mean(), {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch):
        return len(batch["0"])


def fitted(model, **settings):
    torch.manual_seed(0)
    seen = []
    optimizer = {"name": "sgd", "lr": 0.02}
    config = TrainingConfig(batch_size=20, progress=False, optimizer=optimizer, **settings)
    trainer = Trainer(Fit(model), config)
    validate = trainer.validate
    trainer.validate = lambda loader: seen.append(validate(loader)) or seen[-1]
    trainer.fit(DataLoader(DATA, 20, shuffle=True), DataLoader(DATA, 30))
    return trainer, seen


@pytest.mark.parametrize("min_delta", [0.0, 0.01, 0.3, 5.0])
def test_the_best_weights_have_the_lowest_loss_whatever_min_delta(min_delta):
    stopping = {"patience": 50, "min_delta": min_delta}
    trainer, seen = fitted(nn.Linear(3, 1), epochs=6, early_stopping=stopping)
    assert trainer.best["loss"] == min(values["loss"] for values in seen)


def test_a_data_loader_is_validated_as_in_fit():
    trainer, seen = fitted(nn.Linear(3, 1), epochs=2)
    assert trainer.validate(DataLoader(DATA, 30))["loss"] == pytest.approx(seen[1]["loss"])


def test_modules_in_eval_mode_stay_so():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model[1].eval()
    fitted(model, epochs=2)
    assert torch.equal(model[1].running_mean, torch.zeros(4))
    assert not torch.equal(model[2].running_mean, torch.zeros(4))
    assert not model[1].training
    assert model[2].training

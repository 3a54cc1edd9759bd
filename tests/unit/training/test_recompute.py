"""Activations computed again: the same bits in less memory, or a refusal."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from training_worker import Regression, data

from scitoolkit.core.errors import ConfigError
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Trainer, TrainingConfig

RECOMPUTE = {"activations": "recompute"}


class Deep(Regression):
    """Blocks with dropout and running statistics; counts the numbers that a forward pass saves."""

    def __init__(self):
        super().__init__()
        parts = [
            nn.Linear(3, 30),
            nn.BatchNorm1d(30),
            nn.Tanh(),
            nn.Dropout(0.3),
            nn.Linear(30, 30),
            nn.Tanh(),
        ]
        sizes = nn.ModuleList([nn.Sequential(*parts), nn.Linear(30, 1)])
        self.model, self.saved = nn.Sequential(*sizes), 0

    def loss(self, batch):
        def saved(tensor):
            self.saved += tensor.numel()
            return tensor

        with saved_tensors_hooks(saved, lambda tensor: tensor):
            return super().loss(batch)


def trained(**settings):
    torch.manual_seed(0)
    task = Deep()
    config = TrainingConfig(steps=4, batch_size=12, progress=False, **settings)
    Trainer(task, config).fit(TensorLoader(data(36), 12))
    return task


def test_the_weights_are_the_same_bits_and_less_is_kept():
    plain, again = trained(), trained(memory=RECOMPUTE)
    states = [task.model.state_dict() for task in (plain, again)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert again.saved < 0.5 * plain.saved
    assert all("forward" not in vars(module) for module in again.model.modules())


def test_a_model_without_blocks_is_refused():
    task = Regression()
    task.model = nn.Linear(3, 1)
    config = TrainingConfig(steps=1, batch_size=12, progress=False, memory=RECOMPUTE)
    with pytest.raises(ConfigError, match="no ModuleList or Sequential"):
        Trainer(task, config).fit(TensorLoader(data(), 12))

"""Pruned training against training with masked gradients, bit by bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from training_worker import Regression, data

from scitoolkit.core.errors import ConfigError
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Trainer, TrainingConfig
from scitoolkit.training.memory.config import PruningConfig
from scitoolkit.training.pruning import KeptEntries


def trained(optimizer, run=None, *, task=None, resume=False, **settings):
    task = task or Regression()
    settings = {"epochs": 3, "batch_size": 12, "progress": False, **settings}
    config = TrainingConfig(optimizer={"name": optimizer, "lr": 0.01}, **settings)
    trainer = Trainer(task, config, run=run)
    trainer.fit(TensorLoader(data(), 12), resume=resume)
    return trainer


class Masked(Regression):
    """Prunes like `share: 0.7` and sets the gradients of pruned entries to zero."""

    def __init__(self):
        super().__init__()
        for parameter in self.model.parameters():
            if parameter.dim() > 1:
                size = parameter.detach().abs().flatten()
                kept = size.topk(max(1, round(0.3 * len(size)))).indices
                mask = torch.zeros(len(size)).index_fill(0, kept, 1.0).view_as(parameter)
                parameter.data.mul_(mask)
                parameter.register_hook(lambda gradient, mask=mask: gradient * mask)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_pruned_training_equals_masked_training(optimizer, accumulate):
    masked = trained(optimizer, task=Masked(), accumulate=accumulate)
    pruned = trained(optimizer, pruning={"share": 0.7}, accumulate=accumulate)
    states = [t.task.model.state_dict() for t in (masked, pruned)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    weight = states[1]["blocks.1.weight"]
    assert (weight == 0).sum() == weight.numel() - round(0.3 * weight.numel())


def test_a_pruned_model_keeps_its_zeros_and_vectors_are_whole():
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight[:, 1:] = 0
    kept = KeptEntries(list(model.named_parameters()), PruningConfig())
    assert [len(p) for _, p in kept.moved] == [3, 3]
    model(torch.ones(2, 4)).sum().backward()
    assert model.weight.grad is None
    assert kept.moved[0][1].grad.tolist() == [2.0] * 3
    with pytest.raises(ConfigError, match="no entry of a matrix is zero"):
        KeptEntries(list(nn.Linear(4, 3).named_parameters()), PruningConfig())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"optimizer": {"name": "lamb"}}, "pruning needs optimizer adam"),
        ({"strategy": "sharded"}, "stage 1 or 2"),
    ],
)
def test_what_needs_whole_matrices_is_refused(settings, told):
    with pytest.raises(ConfigError, match=told):
        TrainingConfig(pruning={"share": 0.5}, **settings)


@pytest.mark.multiproc
@pytest.mark.parametrize(
    "more", [{}, {"strategy": "sharded", "sharding": {"stage": 2}, "exchange": {"name": "sdp4bit"}}]
)
def test_pruned_training_resumes_on_two_processes(start, more):
    training = {"pruning": {"share": 0.5}, **more}
    _, whole = start(2, name="whole", training=training)
    assert start(2, stop=(3, "SIGKILL"), training=training)[0] == 1
    _, resumed = start(2, resume=True, training=training)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_whole_channels_of_some_layers_are_pruned_and_stay_zero():
    before = Regression().model.state_dict()
    model = trained("adam", pruning={"share": 0.5, "channels": ["blocks.1"]}).task.model
    weight, bias = model.state_dict()["blocks.1.weight"], model.state_dict()["blocks.1.bias"]
    dead = weight.eq(0).all(1)
    assert dead.sum() == len(dead) - max(1, round(0.5 * len(dead)))
    norms = before["blocks.1.weight"].norm(dim=1)
    assert norms[dead].max() < norms[~dead].min()
    assert bias[dead].eq(0).all()
    assert not torch.equal(weight[~dead], before["blocks.1.weight"][~dead])
    others = [n for n, p in model.named_parameters() if p.dim() > 1 and n != "blocks.1.weight"]
    assert others
    assert not any(model.get_parameter(name).eq(0).any() for name in others)


def test_layers_that_lose_channels_are_named_and_need_a_share():
    with pytest.raises(ConfigError, match=r"no layer 'blocks\.x'"):
        trained("adam", pruning={"share": 0.5, "channels": ["blocks.x"]})
    with pytest.raises(ValueError, match="channels needs share"):
        PruningConfig(channels=["blocks.1"])


def test_a_model_that_was_trained_pruned_has_gradients_again():
    trainer = trained("sgd", pruning={"share": 0.5})
    model = trainer.task.model
    sum(p.square().sum() for p in model.parameters()).backward()
    assert all(p.grad is not None for p in model.parameters())

"""Activations computed again: the same bits in less memory, or a refusal."""

from __future__ import annotations

import contextlib

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


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_parts_that_draw_no_random_numbers_share_one_state(rate, monkeypatch) -> None:
    """A state is 5 KB for each part; with dropout each part needs its own, and gradients agree."""
    from scitoolkit.training.memory import replaced as module

    states = []
    stored = module._state
    monkeypatch.setattr(module, "_state", lambda: states.append(stored()) or states[-1])
    net = nn.Sequential(
        *(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(rate)) for _ in range(5))
    )
    x, gradients = torch.randn(3, 8), []
    for recomputes in (False, True):
        torch.manual_seed(7)
        net.zero_grad()
        with contextlib.ExitStack() as stack:
            for block in net if recomputes else ():
                stack.enter_context(module.replaced(block, recomputes=True))
            loss = net(x).square().sum()
            torch.rand(4)  # the state in the backward pass is another
            before = torch.get_rng_state()
            loss.backward()
        assert torch.equal(before, torch.get_rng_state())
        gradients.append([p.grad.clone() for p in net.parameters()])
    for exact, recomputed in zip(*gradients, strict=True):
        assert torch.equal(exact, recomputed)
    assert len(states) == 5
    assert len({id(state) for state in states}) == (5 if rate else 1)


def test_a_recomputed_part_lives_as_long_as_in_checkpointing_by_torch() -> None:
    """The state of random numbers that a recomputation puts back is not kept after it."""
    from torch.utils.checkpoint import checkpoint

    from scitoolkit.training.memory import replaced as module
    from scitoolkit.training.memory.live_bytes import peak_live_bytes

    net = nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.3)) for _ in range(5))
    )
    x = torch.randn(200, 64)

    def step(by_torch: bool) -> None:
        net.zero_grad()
        h = x
        with contextlib.ExitStack() as stack:
            for block in () if by_torch else net:
                stack.enter_context(module.replaced(block, recomputes=True))
            for block in net:
                h = checkpoint(block, h, use_reentrant=False) if by_torch else block(h)
        h.square().sum().backward()

    step(True)
    peaks = [peak_live_bytes(lambda b=b: step(b), torch.device("cpu")) for b in (True, False)]
    assert peaks[1] <= peaks[0]

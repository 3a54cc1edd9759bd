"""Planned activations: exact where nothing is packed, never worse than recomputation."""

from __future__ import annotations

import pytest
import torch
from squares import Squares
from torch import nn

from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Trainer, TrainingConfig
from scitoolkit.training.memory.config import MemoryConfig
from scitoolkit.training.memory.live_bytes import peak_live_bytes
from scitoolkit.training.memory.parts import divided, observe
from scitoolkit.training.memory.plan import PACK, RECOMPUTE, SAVE, PackingCost, plans, uniform
from scitoolkit.training.memory.planned import PlannedMemory
from scitoolkit.training.memory.recompute import Recompute

CPU = torch.device("cpu")


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm, self.drop = nn.BatchNorm2d(channels), nn.Dropout(0.3)

    def forward(self, x):
        return x + self.drop(nn.functional.gelu(self.norm(self.conv(x))))


class Net(nn.Module):
    def __init__(self, channels=8, blocks=4):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.body = nn.ModuleList(Block(channels) for _ in range(blocks))

    def forward(self, x):
        x = self.stem(x)
        for block in self.body:
            x = block(x)
        return x


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def smooth(count=2):
    x = torch.linspace(0, 6, 64)
    return torch.stack([torch.outer((x + i).sin(), x.cos())[None] for i in range(count)])


def gradients_of(net, store, x):
    def run():
        torch.manual_seed(1)
        with store.saving({"x": x}, 1.0):
            loss = net(x).square().mean()
        loss.backward()
        found = {name: p.grad for name, p in net.named_parameters()}
        net.zero_grad()
        return found

    return run


def test_the_chosen_plan_is_measured_and_never_above_recomputation(net):
    x, store = smooth(), PlannedMemory(net, MemoryConfig(activations="planned"))
    run = gradients_of(net, store, x)
    store.prepare(run)
    chosen, whole = store.chosen, store.trials[0]
    alone = [t for t in store.trials if not t.plan.lossy]
    assert len(alone) >= 2
    assert chosen.peak <= min(t.peak for t in alone) < whole.peak
    assert chosen.error <= 0.01
    assert any(t.plan.lossy for t in store.trials)
    assert peak_live_bytes(run, CPU) < 1.05 * chosen.peak
    again = PlannedMemory(net, MemoryConfig(activations="planned"))
    again.load_state_dict(store.state_dict())
    again.prepare(lambda: pytest.fail("a resumed run measures nothing again"))
    assert all(torch.equal(a, run()[n]) for n, a in gradients_of(net, again, x)().items())


def test_packing_that_errs_too_much_gives_way_to_recomputation(net):
    store = PlannedMemory(net, MemoryConfig(activations="planned"))
    store.load_state_dict(
        {"choices": {"": PACK}, "fallback": {"body.0": RECOMPUTE}, "packing": {"steps": []}}
    )
    for _ in range(2):
        store.adapt({"w": (1.0, 1.0)})
    store.adapt({"w": (float("nan"), float("nan"))})  # a rehearsal that failed
    for _ in range(2):
        store.adapt({"w": (1.0, 1.0)})
    assert store.state_dict()["choices"] == {"": PACK}
    store.adapt({"w": (1.0, 1.0)})
    assert store.state_dict() == {
        "choices": {"body.0": RECOMPUTE},
        "fallback": {"body.0": RECOMPUTE},
        "packing": None,
    }


def test_the_trainer_prepares_before_the_first_step(net):
    config = TrainingConfig(
        steps=3,
        batch_size=2,
        progress=False,
        strategy="single",
        device="cpu",
        memory={"activations": "planned"},
    )
    trainer = Trainer(Squares(net), config)
    trainer.fit(TensorLoader({"x": smooth(4)}, 2))
    assert trainer.activation_store.chosen is not None


def test_plans_trade_seconds_for_bytes(net):
    x, store = smooth(), PlannedMemory(net, MemoryConfig(activations="planned"))
    parts = divided(observe(net, gradients_of(net, store, x)), 1 / 3)
    assert [p.name for p in parts] == ["stem", *(f"body.{i}" for i in range(4))]
    found = plans(parts, PackingCost(10.0, 1e-9))
    assert [p.peak for p in found] == sorted(p.peak for p in found)
    assert found[0].peak <= uniform(parts, PACK, PackingCost(10.0, 1e-9)).peak * 1.000001
    assert found[-1].seconds == 0
    assert set(found[-1].choices.values()) == {SAVE}


def test_a_store_that_does_not_exist_is_refused_by_name():
    with pytest.raises(ValueError, match=r"unknown store 'commet'.*did you mean comet"):
        MemoryConfig(activations="commet")


def test_parts_that_change_their_input_in_place_are_not_recomputed():
    torch.manual_seed(0)
    layers = [part for _ in range(3) for part in (nn.Linear(64, 64), nn.SiLU(inplace=True))]
    model, x = nn.Sequential(*layers), torch.randn(2000, 64)
    store = PlannedMemory(model, MemoryConfig(activations="planned", gradient_error=1e-6))
    run = gradients_of(model, store, x)
    wanted = run()
    store.prepare(run)
    assert all(trial.error <= 1e-6 for trial in store.trials if not trial.plan.lossy)
    found = run()
    assert all(torch.allclose(found[name], g, rtol=1e-5, atol=1e-7) for name, g in wanted.items())


def test_only_recomputed_parts_that_draw_numbers_hold_a_state_of_random_numbers():
    size, x = torch.get_rng_state().nbytes, torch.ones(2, 4)

    def held(*parts):
        """Return the bytes that 8 parts hold between the passes."""
        torch.manual_seed(0)
        net = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), *parts) for _ in range(8)))
        store, results = Recompute(net, MemoryConfig(activations="recompute")), []

        def forward():
            with store.saving({"x": x}, 1.0):
                results.append(net(x))

        def later():
            torch.zeros(2**20)

        return peak_live_bytes(lambda: (forward(), later()), CPU) - torch.zeros(2**20).nbytes

    assert held(nn.Tanh()) < size
    assert 8 * size <= held(nn.Dropout(0.5)) < 9 * size

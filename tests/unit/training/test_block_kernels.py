"""The block codec in Triton and in torch: the same bytes, zeros, signs, and the bound of a block.

On a GPU with `pytest -m gpu`; under Triton's interpreter in a process that `test_block_codec.py`
starts.
"""

from __future__ import annotations

import contextlib
import os

import pytest
import torch
from torch import nn

from scitoolkit.ops.codegen import triton_version
from scitoolkit.training.memory import block_codec as codec
from scitoolkit.training.memory import comet as comet_module
from scitoolkit.training.memory.comet import Comet
from scitoolkit.training.memory.config import MemoryConfig
from scitoolkit.training.memory.exact_tensors import narrow, widen
from scitoolkit.training.memory.planned import PlannedMemory

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.skipif(not triton_version(), reason="triton is not installed"),
    *([] if INTERPRETED else [pytest.mark.gpu]),
]
CASES = [
    ((2, 1, 24, 20), "relu"),
    ((3, 13, 17), "normal"),
    ((2, 20, 24), "shifted"),
    ((9, 65), "rows of zeros"),
    ((100,), "normal"),
    ((3, 4, 4), "relu"),
    ((1,), "normal"),
]


def values(shape, kind, dtype):
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    if kind == "relu":
        x = x.relu()
    if kind == "rows of zeros":
        x = x * (torch.arange(shape[-1]) < shape[-1] // 2)
    if kind == "shifted":
        x = x * 1e-3 + 300
    return x.to(DEVICE, dtype)


def encoded(x, relative, *, in_torch, monkeypatch):
    with monkeypatch.context() as patch:
        if in_torch:
            patch.setattr(codec, "has_kernels", lambda x: False)
        blocks = codec.Encoding(x, relative).finish()
        return blocks, None if blocks is None else codec.decode(blocks)


@pytest.mark.parametrize(("shape", "kind"), CASES)
def test_triton_and_torch_write_the_same_bytes(shape, kind, monkeypatch):
    for dtype, relative in [
        (torch.float32, 0.02),
        (torch.float64, 0.3),
        (torch.bfloat16, 0.3),
        (torch.float16, 3.0),
    ]:
        x = values(shape, kind, dtype)
        one, y = encoded(x, relative, in_torch=False, monkeypatch=monkeypatch)
        two, z = encoded(x, relative, in_torch=True, monkeypatch=monkeypatch)
        if one is None or two is None:
            assert one is two
            continue
        assert y.dtype == dtype
        assert y.device == x.device
        assert torch.equal(y == 0, x == 0)
        assert bool((y >= 0).all()) or bool((x < 0).any())
        # Coefficients at half a step may be rounded either way.
        differ = abs(len(one.data) - len(two.data)) + int((one.sizes != two.sizes).sum())
        assert differ <= 0.02 * len(one.data) + 2
        step = float(one.numbers[0])
        off = (y.double() - z.double()).abs().max()
        assert float(off) <= 1.2 * step
        rounding = torch.finfo(dtype).eps * float(x.double().abs().max())
        error = float((x.double() - y.double()).square().sum().sqrt())
        bound = 0.6 * step + rounding
        assert error <= bound * (2 * x.numel() + 64) ** 0.5


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
def test_not_finite_values_are_not_encoded():
    for wrong in (float("nan"), float("inf"), -float("inf")):
        x = torch.zeros(64, 64, device=DEVICE)
        x[3, 4] = wrong
        assert codec.Encoding(x, 0.1).finish() is None


def test_gradients_of_a_network_on_the_device(monkeypatch):
    monkeypatch.setattr(comet_module, "has_c_codec", lambda tensor: False)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 1, 3),
        nn.GELU(),
    )
    net.to(DEVICE)
    x = torch.linspace(0, 9, 16 * 24, device=DEVICE).sin().reshape(1, 1, 16, 24)
    store = Comet(net, MemoryConfig(activations="comet", smallest=64))

    def gradients(context):
        net.zero_grad()
        with context:
            loss = net(x).square().mean()
        loss.backward()
        return torch.cat([p.grad.flatten() for p in net.parameters()])

    exact = gradients(contextlib.nullcontext())
    errors = []
    for step in (1e-3, 0.3):
        store.steps = [step] * 16
        off = gradients(store.saving({"x": x}, 1.0)) - exact
        errors.append(float(off.norm() / exact.norm()))
    assert errors[0] < 2e-3
    assert errors[0] < errors[1] < 0.5
    assert 0 < store.kept_bytes < store.raw_bytes / 4


@pytest.mark.skipif(INTERPRETED, reason="needs the times and the memory of a GPU")
def test_the_planner_measures_packing_on_a_gpu():
    torch.manual_seed(0)
    blocks = [layer for _ in range(6) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.GELU())]
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), *blocks).to(DEVICE)
    x = torch.linspace(0, 9, 128 * 128, device=DEVICE).sin().reshape(1, 1, 128, 128)
    store = PlannedMemory(net, MemoryConfig(activations="planned", smallest=64))

    def gradients():
        net.zero_grad()
        with store.saving({"x": x}, 1.0):
            loss = net(x).square().mean()
        loss.backward()
        return {name: p.grad for name, p in net.named_parameters()}

    store.prepare(gradients)
    assert all(trial.seconds > 0 for trial in store.trials)
    assert any(trial.plan.lossy for trial in store.trials)
    assert store.chosen.peak < store.trials[0].peak


def test_integers_and_booleans_are_exact_on_the_device(monkeypatch):
    monkeypatch.setattr("scitoolkit.training.memory.exact_tensors.on_host", lambda x: False)
    for values in (torch.arange(21) % 3 == 0, torch.arange(300).reshape(3, 100) + 2**40):
        on_device = values.to(DEVICE)
        assert torch.equal(widen(narrow(on_device)), on_device)
        assert narrow(on_device).num_bytes <= values.nbytes / 4

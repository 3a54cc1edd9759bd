"""Compiled training: blocks, any batch size, what is told, what is refused, and its end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from scitoolkit.core.errors import ConfigError, Interrupted
from scitoolkit.ops.codegen import kernel_backends, operations
from scitoolkit.potentials.deepmd.descriptors.attention_layer import AttentionLayer
from scitoolkit.potentials.model import Potential
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Trainer, TrainingConfig, compiled

# torch hides this warning of its compiler, but not from a filter that makes it an error.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.Tanh())

    def forward(self, x):
        return x + self.inner(x)


class Deep(nn.Module):
    def __init__(self, depth: int = 10) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.head = nn.Linear(3, 8), nn.Linear(8, 1)
        self.blocks = nn.ModuleList(Residual(8) for _ in range(depth))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Rows:
    """Fits the sum of rows of three numbers."""

    def __init__(self, model: nn.Module) -> None:
        self.model: nn.Module = model

    def loss(self, batch):
        return (self.model(batch["x"]) - batch["y"]).square().mean(), {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch):
        return len(batch["x"])


@pytest.fixture
def graphs(monkeypatch):
    """The compiled graphs, which run as they were traced."""
    found = []

    def backend(graph, examples):
        found.append(graph)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(compiled, "BACKEND", backend)
    return found


def trained(model, **settings):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(21, 3, generator=generator)  # the last batch of an epoch is smaller
    config = TrainingConfig(epochs=2, batch_size=8, progress=False, device="cpu", **settings)
    loader = TensorLoader({"x": x, "y": x.sum(1, keepdim=True)}, 8)
    Trainer(Rows(model), config).fit(loader, loader)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_equal_blocks_are_compiled_once_for_all_batch_sizes_and_the_weights_are_the_same(
    graphs, caplog
):
    with caplog.at_level(logging.INFO, logger="scitoolkit"):
        found = trained(model := Deep(), compile=True)
    # One more where gradients are not needed: the validation.
    assert len(graphs) <= 4
    assert torch.equal(found, trained(Deep()))
    told = [r.getMessage() for r in caplog.records if "compil" in r.getMessage()]
    assert len(told) == 2
    assert told[0] == "compiling 10 blocks of Deep in the first step"
    assert told[1].startswith("compiled; the first step took ")
    assert all(module._compiled_call_impl is None for module in model.modules())


def test_blocks_of_different_widths_are_all_compiled(graphs):
    widths = range(8, 20)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(n, n + 1), nn.Tanh()) for n in widths))
    parts = compiled.CompiledModel(model)
    for batch in (6, 5, 1, 7):
        model(torch.ones(batch, 8, requires_grad=True))
    parts.detach()
    assert len(parts.parts) == 12
    assert len(graphs) <= 24  # a batch of one sample is compiled apart


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)),
        nn.Linear(3, 1),
        nn.ModuleList([nn.Sequential(nn.Linear(3, 4), nn.Tanh())]),
    ],
)
def test_a_model_without_blocks_is_compiled_whole(model, graphs):
    parts = compiled.CompiledModel(model)
    parts.detach()
    assert parts.parts == [model]


def test_levels_of_a_u_net_are_compiled_for_their_sizes(graphs):
    levels = [
        nn.Sequential(nn.Conv2d(2**n, 2 ** (n + 1), 3, padding=1), nn.MaxPool2d(2))
        for n in range(3)
    ]
    parts = compiled.CompiledModel(model := nn.Sequential(*levels))
    for batch in (3, 2, 5):
        model(torch.ones(batch, 1, 16, 24, requires_grad=True))
    parts.detach()
    assert len(graphs) == 3
    for graph in graphs:
        shapes = [
            n.meta["example_value"].shape
            for n in graph.graph.nodes
            if n.op == "placeholder" and isinstance(n.meta["example_value"], torch.Tensor)
        ]
        free = [sum(not isinstance(size, int) for size in shape) for shape in shapes]
        assert sorted(free)[-1] == sum(free) == 1, shapes


def test_a_compiler_that_a_signal_ends_is_an_interruption(graphs):
    parts = compiled.CompiledModel(nn.Linear(2, 2))
    with pytest.raises(Interrupted, match="SIGTERM"), parts.told(lambda: "SIGTERM"):
        raise RuntimeError("g++ was killed")
    with pytest.raises(RuntimeError, match="wrong code"), parts.told(str):
        raise RuntimeError("wrong code")
    parts.detach()


class Twice(nn.Module):
    not_compiled = "its kernels cannot be traced"


def test_what_cannot_be_compiled_is_named_before_work_starts(graphs):
    model = nn.Sequential(nn.Linear(3, 1), Twice())
    with pytest.raises(ConfigError, match=r"^training.compile: Twice \(1\) .*cannot be traced"):
        trained(model, compile=True)
    assert not graphs
    assert Potential.not_compiled
    assert "neighbour_attention" in AttentionLayer.not_compiled


def test_kernels_that_cannot_be_traced_are_those_that_a_module_names():
    untraced = {
        name
        for backend in map(kernel_backends.get, kernel_backends)
        for name in operations
        if backend.serves(name) and not backend.implementations[name].traceable
    }
    assert untraced == {"neighbour_attention"}, "name it in `not_compiled` of its modules"


# The compiler never ends: in Python, or in C, where Python's handlers do not run.
ENDLESS = """
import hashlib, logging, os, sys, time
sys.path.insert(0, {folder!r})
import torch
from test_compiled import Deep, trained
from scitoolkit.training import compiled
logging.basicConfig(level=logging.INFO)
def backend(graph, examples):
    if {in_c}:
        print("waits", file=sys.stderr, flush=True)
        hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2**31 - 1)
    for _ in range(2):  # a signal to a child is no request to end its parent
        child = os.fork()
        if child == 0:
            time.sleep(600)
        time.sleep(0.3)  # Python drops what arrives while it forks
        os.kill(child, 15)
        os.waitpid(child, 0)
    print("waits", file=sys.stderr, flush=True)
    while True:
        time.sleep(0.01)
compiled.BACKEND = backend
trained(Deep(2), compile=True)
"""


@pytest.mark.parametrize("in_c", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_second_sigterm_ends_a_step_that_compiles(tmp_path, in_c):
    folder = str(Path(__file__).parent)
    source = ENDLESS.format(folder=folder, in_c=in_c)
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", source], stderr=subprocess.PIPE, text=True, env=env
    )
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line == "waits\n":
                break
        assert any("compiling 2 blocks of Deep" in line for line in lines), lines
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)  # of the scheduler and of the launcher, say
        time.sleep(0.6)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 143
    finally:
        process.kill()
        process.stderr.close()

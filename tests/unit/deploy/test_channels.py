"""Dead channels, removed: the same numbers from smaller layers, in torch and in C."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.channels import Removed, without_dead_channels
from scitoolkit.deploy.export import export


def traced(model: nn.Module, inputs: tuple[int, ...], outputs: tuple[int, ...]):
    def spec(name, shape):
        return ArraySpec(name, tuple(f"d{k}" for k in range(len(shape))), shape, low=-2.0, high=2.0)

    return [TracedFunction(model.eval(), [spec("x", inputs)], [spec("y", outputs)])]


def masked(layer: nn.Module, channels, *, bias: bool = False) -> None:
    """Set weights of output channels to zero, as a mask of a training does."""
    with torch.no_grad():
        layer.weight[channels] = 0
        if bias:
            layer.bias[channels] = 0


def perceptron() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 20),
        nn.SiLU(),
        nn.Dropout(0.5),
        nn.Linear(20, 16),
        nn.Sigmoid(),
        nn.Linear(16, 3, bias=False),
    )
    masked(model[0], range(0, 20, 2))  # constants SiLU(bias)
    masked(model[3], [1, 5])  # constants sigmoid(bias), which the last layer has no bias for
    with torch.no_grad():
        model[5].weight[:, 7] = 0  # not read
    return model


def test_a_perceptron_without_dead_channels_computes_the_same():
    model = perceptron()
    (smaller,), told = without_dead_channels(traced(model, (6,), (3,)))
    assert told == [Removed("0", 10, 20), Removed("3", 3, 16)]
    assert smaller.module[0].weight.shape == (10, 6)
    assert smaller.module[3].weight.shape == (13, 10)
    x = torch.randn(50, 6)
    with torch.no_grad():
        torch.testing.assert_close(smaller.module(x), model(x), rtol=1e-5, atol=1e-6)
    assert model[0].weight.shape == (20, 6)  # the one given is as it was


@pytest.mark.parametrize(
    ("padding", "bias", "left"),
    [("circular", False, 5), ("zeros", True, 5), ("zeros", False, 8), ("valid", False, 5)],
)
def test_convolutions_keep_constants_that_walls_cut(padding, bias, left):
    torch.manual_seed(1)
    options = {"padding": 0} if padding == "valid" else {"padding": 1, "padding_mode": padding}
    model = nn.Sequential(nn.Conv2d(2, 8, 3, **options), nn.GELU(), nn.Conv2d(8, 2, 3, **options))
    masked(model[0], [0, 3, 4], bias=bias)
    functions = traced(model, (2, 9, 7), (2, 9, 7) if padding != "valid" else (2, 5, 3))
    if left == 8:
        with pytest.raises(ConfigError, match="no dead channels"):
            without_dead_channels(functions)
        return
    (smaller,), _ = without_dead_channels(functions)
    assert smaller.module[0].out_channels == left == smaller.module[2].in_channels
    x = torch.randn(4, 2, 9, 7)
    with torch.no_grad():
        torch.testing.assert_close(smaller.module(x), model(x), rtol=1e-5, atol=1e-5)


def test_one_dead_layer_behind_another_and_layers_that_two_chains_share():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        model[4].weight[:, :5] = 0  # one channel of the second is read
        model[2].weight[5, :3] = 0  # which reads three of the first
    (smaller,), told = without_dead_channels(traced(model, (4,), (2,)))
    assert [r.removed for r in told] == [3, 5]
    x = torch.randn(9, 4)
    with torch.no_grad():
        torch.testing.assert_close(smaller.module(x), model(x))
    one = nn.Linear(4, 4)
    masked(one, [0, 1])
    shared = nn.Sequential(
        nn.Sequential(one, nn.Tanh(), nn.Linear(4, 4)),
        nn.Sequential(one, nn.Tanh(), nn.Linear(4, 2)),
    )
    with pytest.raises(ConfigError, match="no dead channels"):
        without_dead_channels(traced(shared, (4,), (2,)))


def test_exported_without_dead_channels_in_c(tmp_path):
    functions = traced(perceptron(), (6,), (3,))
    whole = export(functions, tmp_path / "whole.so")
    small = export(functions, tmp_path / "small.so", ExportConfig(channels="remove"))
    assert small["channels"] == {"0": [10, 20], "3": [13, 16]}
    assert small["weight_bytes"] < 0.7 * whole["weight_bytes"]
    x = np.random.default_rng(0).uniform(-1, 1, (40, 6)).astype(np.float32)
    (a,), _ = CompiledSurrogate(tmp_path / "whole.so")(x)
    (b,), _ = CompiledSurrogate(tmp_path / "small.so")(x)
    assert np.allclose(a, b, rtol=1e-5, atol=1e-6)

"""Tracing of models for export."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.export import export
from scitoolkit.deploy.kinds import Lowering, lowerings


class Second(Lowering):
    targets = ("aten.tanh.default",)


def test_two_lowerings_of_one_operator_are_refused(tmp_path):
    lowerings.register("a_second_tanh")(Second)
    spec = ArraySpec("x", ("feature",), (3,))
    try:
        with pytest.raises(ConfigError, match=r"have the target aten\.tanh\.default"):
            export([TracedFunction(torch.nn.Tanh(), [spec], [spec])], tmp_path / "model.c")
    finally:
        lowerings.unregister("a_second_tanh")


def described(module, shape, *outputs):
    """Return a function of one input."""
    specs = [ArraySpec(f"y{k}", tuple("ab"[: len(s)]), s) for k, s in enumerate(outputs)]
    return TracedFunction(module, [ArraySpec("x", tuple("abc"[: len(shape)]), shape)], specs)


class Ocean(nn.Module):
    """Selections by masks that are buffers, computed from buffers, attributes or written."""

    def __init__(self):
        super().__init__()
        self.register_buffer("depth", torch.tensor([1.0, -2, 3, 0, 0, 1]))
        self.inland = torch.tensor([False, True, False, True, True, False])
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        sea = self.depth > 0
        changed = torch.zeros_like(x)
        wet = (x * sea).masked_fill(~sea | self.inland, 1.0)
        changed[:, sea] = self.layer(wet[:, sea])
        changed[:, ~sea] = x[..., self.inland] * int(sea.sum())
        basin = sea.clone()
        basin[2] = False
        deep = torch.tensor([True, False, False, False, False, True])
        cells = sea.nonzero().squeeze(1)
        return changed, x[:, basin] + x[:, deep], x.index_select(1, cells)


def test_selections_by_constant_masks_are_exported(tmp_path):
    torch.manual_seed(0)
    module = Ocean()
    export([described(module, (6,), (6,), (2,), (3,))], tmp_path / "m.so")
    x = np.random.default_rng(0).normal(size=(19, 6)).astype(np.float32)
    results, _ = CompiledSurrogate(tmp_path / "m.so")(x)
    for result, own in zip(results, module(torch.tensor(x)), strict=True):
        np.testing.assert_allclose(result, own.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert module.depth.tolist() == [1, -2, 3, 0, 0, 1]


class ByValue(nn.Module):
    """A selection by a mask that a value of the input changes, in a view of it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, True, False, False]))

    def forward(self, x):
        mask = self.mask.clone()
        first = mask[:1]
        first.logical_and_(x[0, :1] > 0)
        return x[:, mask].sum(1, keepdim=True)


class Unpooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x):
        return self.unpool(*self.pool(x))


class Positive(nn.Module):
    def forward(self, x):
        factor, error = torch.linalg.cholesky_ex(x)
        return factor * (error == 0)[:, None, None]


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean()
        return x - self.mean


@pytest.mark.parametrize(
    ("module", "shape", "out", "text"),
    [
        (ByValue(), (4,), (1,), "mixed|depends on values"),
        (Unpooled(), (2, 4, 4), (2, 4, 4), "result 2 of operator aten.max_pool2d_with_indices"),
        (Positive(), (2, 2), (2, 2), "result 2 of operator aten.linalg_cholesky_ex"),
        (State(), (4,), (4,), "keeps a state"),
    ],
)
def test_what_c_has_no_value_for_is_refused_by_name(module, shape, out, text, tmp_path):
    with pytest.raises(ConfigError, match=text):
        export([described(module, shape, out)], tmp_path / "m.so")


def test_a_weight_norm_is_exported_in_double_precision(tmp_path):
    with pytest.warns(FutureWarning, match="deprecated"):
        layer = nn.utils.weight_norm(nn.Linear(4, 4))
    export([described(layer, (4,), (4,))], tmp_path / "m.so", ExportConfig(dtype="float64"))
    x = np.random.default_rng(0).normal(size=(3, 4))
    (y,), _ = CompiledSurrogate(tmp_path / "m.so")(x)
    np.testing.assert_allclose(y, layer.double()(torch.tensor(x)).detach().numpy(), rtol=1e-12)

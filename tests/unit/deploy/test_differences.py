"""Error of compressed forms: the box outside of which it was not measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from surveyed_modules import Call
from torch import nn

from scitoolkit.core.errors import NumericalError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.differences import in_measured_box
from scitoolkit.deploy.export import calibration, export, held_out

RANDOM = np.random.default_rng(0)


def last(layer: nn.Module) -> nn.Module:
    return Call(lambda inner, x: inner(x)[0][:, -1], layer)


def recurrent(kind: type[nn.RNNBase]) -> tuple[nn.Module, tuple[int, ...]]:
    return last(kind(16, 32, batch_first=True)), (6, 16)


LAYERS = {
    "lstm": lambda: recurrent(nn.LSTM),
    "gru": lambda: recurrent(nn.GRU),
    "rnn": lambda: recurrent(nn.RNN),
    "dense": lambda: (nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 16)), (24,)),
    "attention": lambda: (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (4, 16)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("form", [{"bits": 8}, {"bits": 4}])
def test_status_0_is_only_where_the_error_was_measured(name, form, tmp_path):
    """Inputs of 1e5 saturate gates, of which rounded weights change the sides."""
    torch.manual_seed(0)
    module, shape = LAYERS[name]()
    module.eval()
    with torch.no_grad():
        out = module(torch.zeros(1, *shape)).shape[1:]
    specs = [ArraySpec(n, tuple("ab"[: len(s)]), s) for n, s in (("x", shape), ("y", tuple(out)))]
    function = TracedFunction(module, specs[:1], specs[1:])
    record = export([function], tmp_path / "m.so", ExportConfig(**form))
    library = CompiledSurrogate(tmp_path / "m.so")
    told, header = record["differences"][0]["maximum"], (tmp_path / "m.h").read_text()
    for size in (1e-3, 1.0, 2.0, 10.0, 1e3, 1e5, 1e30):
        x = (size * RANDOM.normal(size=(40, *shape))).astype(np.float32)
        (own,), status = library(x)
        wanted = module(torch.tensor(x)).detach().numpy()
        change = np.abs(own - wanted).reshape(40, -1).max(1)
        assert (change[status == 0] <= 3 * told).all(), size
        if size <= 1:
            assert not status.any()
        if size >= 10:
            assert status.all()
    (spec,) = in_measured_box(function, [calibration(function), held_out(function)[0]]).inputs
    low, high = (np.broadcast_to(limit, shape) for limit in (spec.low, spec.high))
    ones = np.eye(len(low.ravel())).reshape(-1, *shape)
    levels = np.linspace(0, 1, 9).reshape(-1, *[1] * len(shape))
    fields = (
        np.where(RANDOM.integers(0, 2, (300, *shape)), high, low),
        low + levels * (high - low),
        ones * high,
        ones * low,
    )
    x = np.concatenate(fields).astype(np.float32)
    change = np.abs(library(x)[0][0] - module(torch.tensor(x)).detach().numpy()).max()
    assert change <= 1.25 * record["differences"][0]["extreme"]
    assert f"{record['differences'][0]['extreme']:.3g} on extreme inputs" in header


def test_max_error_holds_on_extreme_inputs_and_a_module_without_slopes_is_measured(tmp_path):
    torch.manual_seed(0)
    layer = nn.Linear(64, 16)

    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x, scale):
            return self.layer(x).detach() * scale.sum(), x[:, 0]

    inputs = [ArraySpec("x", ("k",), (64,), low=-1.0, high=1.0)]
    inputs += [ArraySpec("scale", ("k",), (2,), low=0.0, high=1.0, shared=True)]
    outputs = [ArraySpec("y", ("k",), (16,)), ArraySpec("same", (), ())]
    function = TracedFunction(Detached(), inputs, outputs)
    told, same = export([function], tmp_path / "m.so", ExportConfig(bits=8))["differences"]
    assert same["extreme"] == 0
    assert 1.2 * told["relative"] < told["worst"]
    between = (told["relative"] + told["worst"]) / 2
    with pytest.raises(NumericalError, match="on extreme inputs inside the box"):
        export([function], tmp_path / "n.so", ExportConfig(bits=8, max_error=between))
    assert not (tmp_path / "n.so").exists()


def test_a_box_wider_than_the_examples_and_a_state_that_leaves_them_are_told(tmp_path):
    torch.manual_seed(0)
    cell = nn.LSTM(16, 32, batch_first=True)

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def forward(self, x, h, c):
            _, (h, c) = self.cell(x[:, None], (h[None], c[None]))
            return h[0], c[0] + 2

    names = (("x", 16), ("h", 32), ("c", 32))
    inputs = [ArraySpec(n, ("k",), (s,), low=-1e6, high=1e6) for n, s in names]
    outputs = [ArraySpec(f"{n} after", ("k",), (s,)) for n, s in names[1:]]
    arrays = [RANDOM.uniform(-1, 1, (100, s)).astype(np.float32) for _, s in names]
    function = TracedFunction(Step(), inputs, outputs, arrays)
    export([function], tmp_path / "m.so", ExportConfig(bits=8))
    library = CompiledSurrogate(tmp_path / "m.so")
    x, h, c = (array[:5] for array in arrays)
    statuses = []
    for _ in range(12):
        (h, c), status = library(x, h, c)
        statuses.append(int(status.max()))
    assert statuses[0] == 0
    assert statuses[-1] == 1
    assert library(1e5 * x, h, c)[1].tolist() == [1] * 5


def test_the_box_is_that_of_an_index_in_every_dim_inside_the_declared_one():
    x = RANDOM.uniform(0, 1, (20, 3, 8, 8)) * np.array([1.0, 1e5, 0.0])[:, None, None]
    spec = ArraySpec("x", ("channel", "y", "x"), (3, 8, 8), low=-0.25, high=2e5)
    function = TracedFunction(nn.Identity(), [spec], [spec])
    (box,) = in_measured_box(function, [[x[:10]], [x[10:]]]).inputs
    np.testing.assert_allclose(box.low[:, 0, 0], [-0.25, -0.25, 0], atol=0.02)
    np.testing.assert_allclose(box.high[:, 0, 0], [1.25, 1.25e5, 0], rtol=0.02)
    x[0, 0, 0, 0] = np.nan
    again = in_measured_box(function, [[x]]).inputs[0]
    np.testing.assert_allclose(again.high, box.high, rtol=0.02)
    (box,) = in_measured_box(function, [[np.full((1, 3, 8, 8), 9e5)]]).inputs
    assert (box.low, box.high) == (2e5, 2e5)

"""Random graphs of operators: equal to torch, NaN included, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate
from scitoolkit.deploy.export import export

SHAPES = ((6,), (3, 5), (2, 4, 6))


def _in_place(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 0] = x[:, -1] * 2
    x[..., 1:] *= 0.5 * x[..., :-1].clone()
    x[:, :1].add_(1.0)
    return x


# Functions of one array that keep its shape; log and sqrt make NaN of negative numbers.
ONE = (
    *(
        torch.tanh,
        torch.sigmoid,
        torch.log,
        torch.sqrt,
        torch.relu,
        torch.abs,
        torch.atan,
        torch.neg,
    ),
    *(functional.gelu, functional.silu, functional.elu, functional.softplus, functional.hardtanh),
    lambda x: torch.softmax(x, -1),
    lambda x: x - x.mean(-1, keepdim=True),
    lambda x: x / (x.abs().amax(-1, keepdim=True) + 1),
    lambda x: x.cumsum(-1) / x.shape[-1],
    lambda x: x.sort(-1)[0],
    lambda x: x.flip(-1),
    lambda x: x.roll(2, -1),
    lambda x: x.clamp(-1.0, 0.5),
    lambda x: torch.where(x > 0.2, x, 0.1 * x),
    lambda x: functional.pad(x, (1, 1))[..., 1:-1],
    lambda x: torch.cat([x[..., 2:], x[..., :2]], -1),
    lambda x: x.gather(-1, x.abs().nan_to_num(0, 0, 0).clamp(max=2).long()),
    lambda x: x.transpose(1, -1).contiguous().transpose(1, -1),
    lambda x: functional.layer_norm(x, x.shape[-1:]),
    lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=x.shape[-1]),
    lambda x: x * torch.linspace(-1, 1, x.shape[-1]),
    lambda x: torch.maximum(x, x.flip(-1)),
    lambda x: (3 * x.nan_to_num(0, 0, 0).clamp(-9, 9)).int().float() / 3,
    _in_place,
)
TWO = (torch.add, torch.mul, torch.sub, torch.minimum, torch.atan2, lambda a, b: a / (b.abs() + 1))


class Graph(nn.Module):
    """A random graph: steps that take earlier results, with layers in between."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = np.random.default_rng(seed)
        self.shape = SHAPES[generator.integers(len(SHAPES))]
        width = self.shape[-1]
        torch.manual_seed(seed)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.steps = [
            (int(generator.integers(4)), *(int(n) for n in generator.integers(0, 10**6, 3)))
            for _ in range(generator.integers(3, 9))
        ]

    def forward(self, x: Tensor) -> Tensor:
        made = [x]
        for kind, choice, first, second in self.steps:
            a, b = made[first % len(made)], made[second % len(made)]
            if kind == 0:
                made.append(self.layers[choice % 2](a))
            elif kind == 1:
                made.append(TWO[choice % len(TWO)](a, b))
            else:
                made.append(ONE[choice % len(ONE)](a))
        return torch.stack([made[-1], made[len(made) // 2]], 1)


def functions(seeds) -> list[TracedFunction]:
    """Return one function a graph."""
    out = []
    for seed in seeds:
        graph = Graph(seed)
        dims = tuple("abcd"[: len(graph.shape)])
        inputs = [ArraySpec("x", dims, graph.shape, "", -1.5, 1.5)]
        outputs = [ArraySpec("y", ("two", *dims), (2, *graph.shape))]
        out.append(TracedFunction(graph, inputs, outputs, name=f"g{seed}"))
    return out


def check(seeds, folder) -> None:
    made = functions(seeds)
    try:
        export(made, folder / "m.so")
    except ConfigError:  # by name: all others one by one
        if len(made) > 1:
            for seed in seeds:
                check([seed], folder)
        return
    library = CompiledSurrogate(folder / "m.so")
    for function in made:
        x = np.random.default_rng(1).uniform(-1.5, 1.5, (35, *function.inputs[0].shape))
        x = x.astype(np.float32)
        (y,), status = library(x, function=function.name)
        with torch.no_grad():
            wanted = function.module(torch.tensor(x)).numpy()
        np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted), err_msg=function.name)
        largest = max(float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)), 1e-3)
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=2e-5 * largest, err_msg=function.name)
        wrong = ~np.isfinite(wanted).reshape(35, -1).all(1)
        assert (status[wrong] == 2).all(), function.name


def test_random_graphs_are_equal_to_torch_or_refused(tmp_path):
    check(range(4), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4, 2000, 24))
def test_many_random_graphs_are_equal_to_torch_or_refused(first, tmp_path):
    check(range(first, min(first + 24, 2000)), tmp_path)

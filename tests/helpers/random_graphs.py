"""Random graphs of operators, of all ranks, forms and dtypes, as C.

Every step takes earlier results: an operator, a layer that other steps share, or two results that
broadcast. Operators make NaN and infinities, change copies and their views in place, reinterpret
memory, and compute in integers, truth values and float64. `graph_outcomes` exports the graphs of
some numbers, each in a form that its number chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from exported import outcomes
from torch import Tensor, nn
from torch.nn import functional

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import ExportConfig

SHAPES = ((6,), (3, 5), (2, 4, 6), (1, 7, 1), (2, 2, 3, 4))
WIDE = ((48,), (3, 32))
"""Shapes for layers of few bits and of low rank."""
FORMS = (*["float32"] * 11, *["float64"] * 5, "8 bits", "4 bits", "2 bits", "low rank")
RANK = 4
CLOSE = {"8 bits": (0.0, 0.1), "4 bits": (0.0, 0.6), "2 bits": (0.0, 2.0), "low rank": (1e-3, 1e-3)}
"""Largest changes of results by form; the exporter holds the C code to its own bound."""


def _rows_in_place(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 0] = x[:, -1] * 2
    x[..., 1:] *= 0.5 * x[..., :-1].clone()
    x[:, :1].add_(1.0)
    return x


def _views_in_place(x: Tensor) -> Tensor:
    """Change memory through two views of it, one of them transposed."""
    x = x.clone()
    other = x.transpose(1, -1)
    x[..., ::2] *= 0.5
    other[:, -1:] += x.transpose(1, -1)[:, :1]
    x.flatten(1)[:, ::3] -= 0.25
    return x + 0.5 * other.transpose(1, -1)


def _finite(x: Tensor) -> Tensor:
    return x.nan_to_num(0.0, 0.0, 0.0)


# Operators without jumps and with small derivatives, for forms that round weights and inputs.
SMOOTH: tuple[Callable[[Tensor], Tensor], ...] = (
    *(torch.tanh, torch.sigmoid, torch.relu, torch.abs, torch.atan, torch.neg, torch.erf),
    *(functional.gelu, functional.silu, functional.elu, functional.hardtanh, functional.softsign),
    lambda x: torch.softmax(x, -1),
    lambda x: x - x.mean(-1, keepdim=True),
    lambda x: x.flip(-1),
    lambda x: x.roll(2, -1),
    lambda x: torch.cat([x[..., 2:], x[..., :2]], -1),
    lambda x: torch.maximum(x, x.flip(-1)),
    lambda x: x.transpose(1, -1).contiguous().transpose(1, -1),
    lambda x: x / (x.abs().amax(-1, keepdim=True) + 1),
    _views_in_place,
)
ROUGH: tuple[Callable[[Tensor], Tensor], ...] = (
    *(torch.log, torch.sqrt, torch.log1p, torch.expm1, torch.rsqrt, torch.sinh, torch.asin),
    *(torch.square, torch.reciprocal, torch.round, torch.floor, torch.sign, torch.tan),
    lambda x: torch.exp(60 * x),
    lambda x: x.cumsum(-1) / x.shape[-1],
    lambda x: x.cumprod(-1),
    lambda x: x.cummax(-1)[0],
    lambda x: x.sort(-1)[0],
    lambda x: x.sort(1, descending=True)[0],
    lambda x: x.clamp(-1.0, 0.5),
    lambda x: x.clamp(-x.abs(), x.abs() * 0.5),
    lambda x: torch.where(x > 0.2, x, 0.1 * x),
    lambda x: x.masked_fill(x < -1, -torch.inf),
    lambda x: functional.pad(x, (1, 1))[..., 1:-1],
    lambda x: functional.pad(x, (2, -1), value=0.5)[..., : x.shape[-1]] * torch.ones_like(x),
    lambda x: x.gather(-1, _finite(x).abs().clamp(max=x.shape[-1] - 1).long()),
    lambda x: torch.zeros_like(x).scatter_add(-1, (3 * _finite(x).abs()).long() % x.shape[-1], x),
    lambda x: torch.take_along_dim(x, x.argsort(-1), -1),
    lambda x: functional.layer_norm(x, x.shape[-1:]),
    lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=x.shape[-1]),
    lambda x: x * torch.linspace(-1, 1, x.shape[-1]),
    lambda x: (3 * _finite(x).clamp(-9, 9)).int().to(x.dtype) / 3,
    lambda x: ((20 * _finite(x).clamp(-9, 9)).long() // 3 % 5 - 1).to(x.dtype),
    lambda x: (x.double().exp() / 3).to(x.dtype),
    lambda x: ((x > 0) & ~(x > 1)).to(x.dtype) - torch.isnan(x).to(x.dtype),
    lambda x: x.unflatten(-1, (1, -1)).expand(*x.shape[:-1], 3, -1).sum(-2),
    lambda x: torch.einsum("b...i,b...i->b...", x, x).unsqueeze(-1) - x,
    lambda x: x.reshape(len(x), -1)[:, torch.arange(x[0].numel() - 1, -1, -1)].reshape(x.shape),
    lambda x: functional.logsigmoid(x) + torch.logsumexp(x, -1, keepdim=True),
    lambda x: torch.addmm(
        x.flatten(1), x.flatten(1), torch.eye(x[0].numel()), beta=0.5, alpha=-2
    ).reshape(x.shape),
    _rows_in_place,
)
TWO: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    *(torch.add, torch.mul, torch.sub, torch.minimum, torch.maximum),
    lambda a, b: a / (b.abs() + 1),
    lambda a, b: torch.lerp(a, b, 0.25),
)
ROUGH_TWO = (torch.atan2, torch.fmod, torch.div, torch.hypot, torch.copysign, torch.logaddexp)
BROADCAST: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x.mean(-1, keepdim=True),
    lambda x: x.amax(1, keepdim=True),
    lambda x: x[..., -1:],
    lambda x: x[:, :1],
)


class RandomGraph(nn.Module):
    """A random graph.

    Args:
        seed: number of the graph.
        smooth: use wide layers and only operators without jumps, for compressed forms.
    """

    def __init__(self, seed: int, *, smooth: bool = False) -> None:
        super().__init__()
        generator = np.random.default_rng(seed)
        torch.manual_seed(seed)
        shapes = WIDE if smooth else SHAPES
        self.shape = shapes[generator.integers(len(shapes))]
        width = self.shape[-1]
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        for layer in self.layers if smooth else ():  # of low rank, so that factors are exact
            layer.weight.data = torch.randn(width, RANK) @ torch.randn(RANK, width) / width
        self.register_buffer("shift", torch.linspace(-0.5, 0.5, width))
        self.one, self.two = (SMOOTH, TWO) if smooth else (SMOOTH + ROUGH, TWO + ROUGH_TWO)
        steps = generator.integers(0, 10**6, (generator.integers(1, 6), 4))
        self.steps = [tuple(int(n) for n in step) for step in steps]

    def forward(self, x: Tensor) -> Tensor:
        made = [x, self.layers[0](x)]
        for kind, choice, first, second in self.steps:
            a, b = made[first % len(made)], made[second % len(made)]
            match kind % 8:
                case 0:
                    made.append(self.layers[choice % 2](a))
                case 1:
                    made.append(self.two[choice % len(self.two)](a, b))
                case 2:
                    part = BROADCAST[choice % len(BROADCAST)](b)
                    made.append(self.two[choice % len(self.two)](a, part))
                case 3:
                    made.append(a.add(b, alpha=0.5) - self.shift * self.shift)
                case _:
                    made.append(self.one[choice % len(self.one)](a))
        return torch.stack([made[-1], made[len(made) // 2]], 1)


def graph_outcomes(
    numbers: Sequence[int], folder: Path, together: int = 16, *, optimised: bool = False
) -> dict[str, str]:
    """Return {"NUMBER FORM": outcome} of the graphs of some numbers; see `outcomes`."""
    told: dict[str, str] = {}
    for form in dict.fromkeys(FORMS):
        own = [n for n in numbers if FORMS[n % len(FORMS)] == form]
        functions = [_described(n, form) for n in own]
        options = (lambda part, form=form: _config(part, form), together, CLOSE.get(form))
        told |= outcomes(functions, folder, *options, optimised=optimised)
    return told


def _described(number: int, form: str) -> TracedFunction:
    graph = RandomGraph(number, smooth=form in CLOSE)
    dims = tuple("abcd"[: len(graph.shape)])
    inputs = [ArraySpec("x", dims, graph.shape, "", -1.5, 1.5)]
    outputs = [ArraySpec("y", ("two", *dims), (2, *graph.shape))]
    return TracedFunction(graph, inputs, outputs, name=f"{number} {form}")


def _config(functions: Sequence[TracedFunction], form: str) -> ExportConfig:
    if form.startswith("float"):
        return ExportConfig(dtype=form)
    if form == "low rank":
        names = [f"parts.{k}.layers.0" for k in range(len(functions))]
        return ExportConfig(ranks={name: [RANK] for name in names})
    return ExportConfig(bits=int(form[0]))

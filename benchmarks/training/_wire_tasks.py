"""Two small surrogates with generated data: three smooth functions, and Burgers' equation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SAMPLES, TEST = 4096, 1024


class Surrogate:
    """A network on inputs and targets; the loss is the mean squared error."""

    def __init__(self, network: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        self.model = network
        self.train = {"x": inputs[TEST:], "y": targets[TEST:]}
        self.test = {"x": inputs[:TEST], "y": targets[:TEST]}

    def loss(self, batch):
        return (self.model(batch["x"]) - batch["y"]).square().mean(), {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch):
        return len(batch["x"])


def network(inputs: int, width: int, outputs: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Linear(inputs, width), nn.Tanh()]
    for _ in range(2):
        layers += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def functions(seed: int) -> Surrogate:
    """Three functions of six inputs."""
    generator = torch.Generator().manual_seed(9)
    x = torch.rand(SAMPLES + TEST, 6, generator=generator) * 2 - 1
    a, b = x[:, :3], x[:, 3:]
    y = torch.stack(
        [
            (3 * a).sin().prod(1) + b.sum(1).cos(),
            (a * b).sum(1).tanh(),
            (-(a - b).square().sum(1)).exp(),
        ],
        1,
    )
    return Surrogate(network(6, 160, 3, seed), x, y)


def burgers(seed: int) -> Surrogate:
    """A periodic field of 64 points to the field half a time unit later, viscosity 0.02."""
    points, steps, time, viscosity = 64, 200, 0.5, 0.02
    generator = torch.Generator().manual_seed(10)
    x = torch.arange(points, dtype=torch.float64) * (2 * torch.pi / points)
    modes = torch.arange(1, 5, dtype=torch.float64)
    draws = torch.randn(2, SAMPLES + TEST, 4, generator=generator, dtype=torch.float64) / modes
    first = draws[0] @ torch.sin(modes[:, None] * x) + draws[1] @ torch.cos(modes[:, None] * x)
    waves = torch.fft.rfftfreq(points, 1 / points, dtype=torch.float64)
    kept = waves < points / 3  # against aliasing
    step = time / steps
    decay = torch.exp(-viscosity * waves**2 * step)

    def change(spectrum: Tensor) -> Tensor:
        u = torch.fft.irfft(spectrum, points)
        return -0.5j * waves * kept * torch.fft.rfft(u * u)

    spectrum = torch.fft.rfft(first)
    for _ in range(steps):  # midpoint rule, diffusion exactly
        half = spectrum + 0.5 * step * change(spectrum)
        spectrum = decay * (spectrum + step * change(half))
    last = torch.fft.irfft(spectrum, points)
    return Surrogate(network(points, 160, points, seed), first.float(), last.float())


SURROGATES = {"functions": functions, "burgers": burgers}

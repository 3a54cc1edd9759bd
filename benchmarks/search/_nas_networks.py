"""Small networks for one-step forecasts of a few coordinates: space, training, weight sharing.

A configuration selects the target (the value, the increment, or the residual of a linear map of the
inputs), whether a linear path and products of the last state are added to the body, the body's
cell, width and activation, and the number of input steps. Letters: B windows, K steps,
R coordinates.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

INPUTS, LEADS, BATCH, PRODUCTS = 8, 8, 128, 32
RATE = 4e-3
AXES = {
    "predicts": ("value", "increment", "residual"),
    "linear": (False, True),
    "products": (False, True),
    "cell": ("mlp", "conv", "gru", "lstm"),
    "width": (16, 24, 32, 48),
    "activation": ("gelu", "tanh"),
    "inputs": (4, 8),
}
HAND_MADE = {
    "predicts": "value",
    "linear": False,
    "products": False,
    "cell": "lstm",
    "width": 48,
    "activation": "tanh",
    "inputs": 8,
}


class Net(NamedTuple):
    """A point of the space."""

    predicts: str
    linear: bool
    products: bool
    cell: str
    width: int
    activation: str
    inputs: int


def all_networks() -> list[Net]:
    """Return every distinct point; recurrent cells ignore the activation."""
    found = (Net(*values) for values in product(*AXES.values()))
    return [n for n in found if n.cell in ("mlp", "conv") or n.activation == "tanh"]


@dataclass
class Task:
    """Standardised coordinates (time, R), divided in time, and the linear map of all inputs."""

    z: Tensor
    train: int
    validation: int

    @classmethod
    def of(cls, values: np.ndarray, train: int, validation: int) -> Task:
        """Return the task of raw coordinates."""
        mean, deviation = values[:train].mean(axis=0), values[:train].std(axis=0)
        task = cls(
            torch.tensor((values - mean) / deviation, dtype=torch.float32), train, validation
        )
        task.scale = deviation
        x, y = task.windows(0, train)
        design = torch.cat([x.flatten(1), torch.ones(len(x), 1)], 1).double()
        gram = design.T @ design / len(x) + 1e-6 * torch.eye(design.shape[1])
        task.ridge = torch.linalg.solve(gram, design.T @ y.double() / len(x)).float()
        task.x, task.y = x, y
        task.deviation = {
            "value": y.std(0),
            "increment": (y - x[:, -1]).std(0),
            "residual": (y - task.linear(x)).std(0),
        }
        return task

    def windows(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """Return (B, K, R) and (B, R) of the windows inside some steps."""
        last = torch.arange(begin + INPUTS - 1, end - 1)
        return self.z[last[:, None] + torch.arange(1 - INPUTS, 1)], self.z[last + 1]

    def linear(self, x: Tensor) -> Tensor:
        """Return the ridge forecast (B, R)."""
        return x.flatten(1) @ self.ridge[:-1] + self.ridge[-1]


class Body(nn.Module):
    """The nonlinear part: (B, K, R) to (B, width)."""

    def __init__(self, net: Net, channels: int) -> None:
        super().__init__()
        self.cell, width, steps = net.cell, net.width, net.inputs
        act = nn.GELU if net.activation == "gelu" else nn.Tanh
        if net.cell == "mlp":
            self.f = nn.Sequential(
                nn.Flatten(),
                nn.Linear(steps * channels, 2 * width),
                act(),
                nn.Linear(2 * width, width),
                act(),
            )
        elif net.cell == "conv":
            self.f = nn.Sequential(
                nn.Conv1d(channels, width, 2),
                act(),
                nn.Conv1d(width, width, 2),
                act(),
                nn.Flatten(),
                nn.Linear(width * (steps - 2), width),
                act(),
            )
        else:
            self.f = getattr(nn, net.cell.upper())(channels, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        if self.cell == "conv":
            return self.f(x.transpose(1, 2))
        return self.f(x) if self.cell == "mlp" else self.f(x)[0][:, -1]


class Products(nn.Module):
    """Products of pairs of linear forms of the last state."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.p, self.q = nn.Linear(channels, PRODUCTS), nn.Linear(channels, PRODUCTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.p(x[:, -1]) * self.q(x[:, -1])


class Network(nn.Module):
    """A network of the space; parts may be shared with other networks."""

    def __init__(self, net: Net, task: Task, shared: dict | None = None) -> None:
        super().__init__()
        channels, self.net, self.task = task.z.shape[1], net, task
        parts = {} if shared is None else shared

        def part(key, make):
            if key not in parts:
                parts[key] = make()
            return parts[key]

        self.body = part(net[3:], lambda: Body(net, channels))
        self.path = self.pairs = None
        if net.linear:
            self.path = part(
                ("linear", net.predicts, net.inputs),
                lambda: nn.Linear(net.inputs * channels, channels),
            )
        if net.products:
            self.pairs = part("products", lambda: Products(channels))
        self.head = nn.Linear(net.width + (PRODUCTS if net.products else 0), channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the next coordinates (B, R)."""
        seen = x[:, -self.net.inputs :]
        h = self.body(seen)
        if self.pairs is not None:
            h = torch.cat([h, self.pairs(seen)], 1)
        y = self.head(h)
        if self.path is not None:
            y = y + self.path(seen.flatten(1))
        base = {
            "value": lambda: 0.0,
            "increment": lambda: x[:, -1],
            "residual": lambda: self.task.linear(x),
        }[self.net.predicts]()
        return base + y * self.task.deviation[self.net.predicts]


def loss(network: Network, rows: Tensor) -> Tensor:
    """Return the squared error of some training windows, in deviations of the increments."""
    task = network.task
    error = (network(task.x[rows]) - task.y[rows]) / task.deviation["increment"]
    return (error**2).mean()


def trained(net: Net, task: Task, epochs: int, seed: int) -> Network:
    """Return a network after `epochs`, by Adam with one cycle."""
    torch.manual_seed(seed)
    network = Network(net, task)
    batches = len(task.x) // BATCH
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, epochs * batches)
    for _ in range(epochs):
        for rows in torch.randperm(len(task.x))[: batches * BATCH].split(BATCH):
            value = loss(network, rows)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            schedule.step()
    return network


def rollout(network: Network, x: Tensor) -> Tensor:
    """Return (B, lead, R) from windows, on the network's own output."""
    out = []
    with torch.no_grad():
        for _ in range(LEADS):
            y = network(x).clamp(-8, 8)
            out.append(y)
            x = torch.cat([x[:, 1:], y[:, None]], 1)
    return torch.stack(out, 1)


def error(network: Network, begin: int, end: int, stride: int = 5) -> float:
    """Return the RMSE of rollouts inside some steps, in standard deviations."""
    z = network.task.z
    last = torch.arange(begin + INPUTS - 1, end - LEADS, stride)
    forecast = rollout(network, z[last[:, None] + torch.arange(1 - INPUTS, 1)])
    truth = z[last[:, None] + torch.arange(1, LEADS + 1)]
    return float(((forecast - truth) ** 2).mean().sqrt())


def validation(network: Network) -> float:
    """Return the RMSE on the validation part."""
    return error(network, network.task.train, network.task.validation)


def table_of(task: Task, networks: list[Net], epochs: int) -> tuple[dict[Net, float], float]:
    """Return the validation error of every network, and the CPU seconds."""
    begun = time.process_time()
    found = {net: validation(trained(net, task, epochs, 1)) for net in networks}
    return found, time.process_time() - begun


def one_shot(
    task: Task, networks: list[Net], epochs: int, share: float, seed: int
) -> list[Network]:
    """Return the networks with shared weights, by the error that they have with them.

    A path is drawn uniformly for every step; steps are `share` of those of training all.

    Source:
        Single path one-shot, Guo et al. 2020, arXiv:1904.00420.
    """
    torch.manual_seed(seed)
    rng, shared = np.random.default_rng(seed), {}
    made = {net: Network(net, task, shared) for net in networks}
    steps = int(share * len(networks) * epochs * (len(task.x) // BATCH))
    moments: dict[int, list[Tensor]] = {}
    for step in range(steps):
        network = made[networks[rng.integers(len(networks))]]
        rows = torch.as_tensor(rng.integers(0, len(task.x), BATCH))
        loss(network, rows).backward()
        _adam(network, moments, RATE * (1 - step / steps))
    return sorted(made.values(), key=validation)


def screened(ranked: list[Network], rounds: tuple[tuple[int, int], ...]) -> list[Network]:
    """Return networks ranked again after further training of the best ones in each round.

    Shared weights rank networks poorly: each head is trained for few steps, and a body serves many
    heads. Each round trains the best `count` with separate weights for some epochs.

    Args:
        ranked: networks, best first.
        rounds: (count, epochs) of each round.
    """
    for count, epochs in rounds:
        alone = [_trained_on(network, epochs) for network in ranked[:count]]
        ranked = sorted(alone, key=validation)
    return ranked


def _trained_on(network: Network, epochs: int) -> Network:
    """Return a copy of a network after further epochs, its rate falling to 0 from half of ours."""
    task, network.task = network.task, None
    own = copy.deepcopy(network)
    network.task = own.task = task
    batches = len(task.x) // BATCH
    moments: dict[int, list[Tensor]] = {}
    steps = epochs * batches
    order = torch.cat([torch.randperm(len(task.x))[: batches * BATCH] for _ in range(epochs)])
    for step, rows in enumerate(order.split(BATCH)):
        loss(own, rows).backward()
        _adam(own, moments, RATE / 2 * (1 - step / steps))
    return own


def _adam(network: Network, moments: dict[int, list], rate: float) -> None:
    """Step on the weights of one path only: Adam over all would cost thousands of tensors."""
    with torch.no_grad():
        for weight in network.parameters():
            if id(weight) not in moments:
                moments[id(weight)] = [torch.zeros_like(weight), torch.zeros_like(weight), 0]
            state = moments[id(weight)]
            state[2] += 1
            state[0].mul_(0.9).add_(weight.grad, alpha=0.1)
            state[1].mul_(0.999).addcmul_(weight.grad, weight.grad, value=0.001)
            size = (state[1] / (1 - 0.999 ** state[2])).sqrt_().add_(1e-8)
            weight.addcdiv_(state[0] / (1 - 0.9 ** state[2]), size, value=-rate)
            weight.grad = None

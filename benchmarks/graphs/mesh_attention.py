"""Attention among slices on meshes against message passing, with equal CPU seconds.

The potential between the unit circle, where it is given, and a hole of random place and shape,
where it is 0: Laplace's equation by linear finite elements on a new triangular mesh each time. From
positions, types of nodes and boundary values, a network predicts the potential of the inner nodes,
each of which depends on the whole boundary. `physics_attention` (Transolver) and `gine` of the
catalogue, and MeshGraphNet with 5 and with 15 steps, as wide as both; each has the learning rate
that is best for the validation meshes in short runs, inside of the range that was tried. Closed
forms: inverse-distance means of boundary values with the best of four exponents, and the exact
potential without the hole. The error is the RMSE of inner nodes over the standard deviation of the
truth, on other meshes. One thread, one seed.
"""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from _measure import machine
from _mesh_graph_net import MeshGraphNet
from torch import Tensor, nn

from scitoolkit.graphs.models import GINE, PhysicsAttention

FIT, TRIAL = float(os.environ.get("MESH_FIT", 24)), float(os.environ.get("MESH_TRIAL", 4))
RATES, EXPONENTS, WIDTH = (1e-3, 3e-3, 1e-2), (1, 2, 3, 4), 64
PARTS, BATCH = {"train": 160, "validation": 20, "test": 40}, 4
RINGS, RIM, WAVES = 8, 48, 4
INNER, OUTER, HOLE = 0, 1, 2


@dataclass(frozen=True)
class Mesh:
    """Positions (N, 2), directed edges (2, E), types (N,) and potential (N,)."""

    points: np.ndarray
    edges: np.ndarray
    types: np.ndarray
    potential: np.ndarray


def run() -> dict:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    parts = {name: [mesh(rng) for _ in range(count)] for name, count in PARTS.items()}
    exponent = min(EXPONENTS, key=lambda p: error_of(parts["train"], lambda m: nearby(m, p)))
    closed = {
        "inverse_distance": error_of(parts["test"], lambda m: nearby(m, exponent)),
        "without_hole": error_of(parts["test"], without_hole),
    }
    networks = {name: trained(name, parts) for name in NETWORKS}
    errors = {name: figures["error"] for name, figures in networks.items()}
    ours = errors.pop("physics_attention")
    return {
        "nodes_mean": float(np.mean([len(m.points) for m in parts["test"]])),
        "fit_cpu_seconds": FIT,
        "trial_cpu_seconds": TRIAL,
        "closed": closed,
        "exponent": exponent,
        "networks": networks,
        "attention_over_message_passing": ours / min(errors.values()),
        "attention_over_closed": ours / min(closed.values()),
        "machine": machine(),
    }


def mesh(rng: np.random.Generator) -> Mesh:
    """Return a mesh of the disk without a hole, with the potential of random boundary values."""
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import spsolve
    from scipy.spatial import Delaunay

    centre = rng.uniform(-0.35, 0.35, 2)
    waves = np.arange(2, 4)
    bumps = rng.uniform(-0.15, 0.15, (2, len(waves)))
    size = rng.uniform(0.2, 0.35)

    def radius(angle: np.ndarray) -> np.ndarray:
        phases = angle[..., None] * waves
        return size * (1 + np.cos(phases) @ bumps[0] + np.sin(phases) @ bumps[1])

    step = 1 / RINGS
    grid = np.stack(np.meshgrid(*[np.arange(-RINGS, RINGS + 1) * step] * 2), -1).reshape(-1, 2)
    grid += rng.uniform(-0.3, 0.3, grid.shape) * step
    away = grid - centre
    gap = np.hypot(*away.T) - radius(np.arctan2(away[:, 1], away[:, 0]))
    grid = grid[(np.hypot(*grid.T) < 1 - 0.5 * step) & (gap > 0.5 * step)]
    rim, edge = (np.arange(n) * 2 * np.pi / n for n in (RIM, RIM // 3))
    outer = np.stack([np.cos(rim), np.sin(rim)], 1)
    hole = centre + radius(edge)[:, None] * np.stack([np.cos(edge), np.sin(edge)], 1)
    points = np.concatenate([grid, outer, hole])
    types = np.repeat([INNER, OUTER, HOLE], [len(grid), len(outer), len(hole)])
    cells = Delaunay(points).simplices
    cells = cells[~(types[cells] == HOLE).all(1)]

    corners = points[cells]
    sides = np.roll(corners, -1, 1) - np.roll(corners, -2, 1)  # opposite to each corner
    area = np.abs(np.linalg.det(sides[:, :2])) / 2
    stiffness = sides @ sides.transpose(0, 2, 1) / (4 * area[:, None, None])
    row, column = np.repeat(cells, 3, 1).ravel(), np.tile(cells, 3).ravel()
    count = len(points)
    matrix = coo_array((stiffness.ravel(), (row, column)), (count, count)).tocsr()
    potential = np.zeros(count)
    strength = rng.standard_normal((2, WAVES)) / np.arange(1, WAVES + 1)
    phases = rim[:, None] * np.arange(1, WAVES + 1)
    potential[types == OUTER] = (
        rng.standard_normal() + np.cos(phases) @ strength[0] + np.sin(phases) @ strength[1]
    )
    inner = np.flatnonzero(types == INNER)
    load = -(matrix @ potential)[inner]
    potential[inner] = spsolve(matrix[inner][:, inner].tocsc(), load)
    joined = np.stack([row, column])[:, row != column]
    return Mesh(points, np.unique(joined, axis=1), types, potential)


def error_of(meshes: list[Mesh], predict) -> float:
    """Return the RMSE of inner nodes over the standard deviation of the truth."""
    inner = [m.types == INNER for m in meshes]
    truth = np.concatenate([m.potential[i] for m, i in zip(meshes, inner, strict=True)])
    answers = [predict(m)[i] for m, i in zip(meshes, inner, strict=True)]
    return float(np.sqrt(np.mean((np.concatenate(answers) - truth) ** 2)) / truth.std())


def nearby(m: Mesh, exponent: float) -> np.ndarray:
    """Return means of boundary values weighted by powers of inverse distances."""
    fixed = m.types != INNER
    distance = np.linalg.norm(m.points[:, None] - m.points[fixed], axis=-1)
    weights = np.maximum(distance, 1e-9) ** -float(exponent)
    return weights @ m.potential[fixed] / weights.sum(1)


def without_hole(m: Mesh) -> np.ndarray:
    """Return the exact potential of the boundary values of the circle alone."""
    values = np.fft.rfft(m.potential[m.types == OUTER])[: WAVES + 1] / RIM
    place = (m.points @ [1, 1j])[:, None] ** np.arange(WAVES + 1)
    factor = np.where(np.arange(WAVES + 1), 2, 1)
    return (place * values * factor).real.sum(1)


class Attention(nn.Module):
    """`physics_attention` of the catalogue; the graphs of a batch do not see each other."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.network = PhysicsAttention(hidden=WIDTH).build(inputs, 1)

    def forward(self, x: Tensor, edges: Tensor, geometry: Tensor, graph: Tensor) -> Tensor:
        return self.network(x, edges, batch=graph)


class Messages(nn.Module):
    """A network that reads edges, by which no graph is joined to another."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, edges: Tensor, geometry: Tensor, graph: Tensor) -> Tensor:
        return self.network(x, edges, geometry)


def gine(inputs: int) -> nn.Module:
    config = GINE(hidden=WIDTH, layers=8, dropout=0, norm="batch")
    return Messages(config.for_graph(0, 3).build(inputs, 1))


def mesh_graph_net(steps: int):
    return lambda inputs: Messages(MeshGraphNet(inputs, 1, steps, WIDTH, recompute=False))


NETWORKS = {
    "physics_attention": Attention,
    "gine": gine,
    "mesh_graph_net_5": mesh_graph_net(5),
    "mesh_graph_net_15": mesh_graph_net(15),
}


def trained(name: str, parts: dict[str, list[Mesh]]) -> dict:
    """Return the figures of a network with the best rate."""
    validation = parts["validation"]
    trials = {r: error_with(fitted(name, parts, r, TRIAL)[0], validation) for r in RATES}
    # An end of the range that is best may not be the best of all: go on beyond it.
    while (rate := min(trials, key=trials.__getitem__)) in (min(trials), max(trials)):
        other = rate / 3 if rate == min(trials) else 3 * rate
        trials[other] = error_with(fitted(name, parts, other, TRIAL)[0], validation)
    model, steps, seconds = fitted(name, parts, rate, FIT)
    figures = {
        "error": error_with(model, parts["test"]),
        "rate": rate,
        "trials": {f"{r:.2g}": error for r, error in trials.items()},
        "steps": steps,
        "step_ms": 1000 * seconds / steps,
        "cpu_seconds": seconds,
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    print(name, figures, file=sys.stderr, flush=True)
    return figures


def fitted(
    name: str, parts: dict[str, list[Mesh]], rate: float, budget: float
) -> tuple[nn.Module, int, float]:
    """Return a trained network, its steps and its CPU seconds."""
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    model = NETWORKS[name](inputs=6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    begin, steps, used = time.process_time(), 0, 0.0
    while used < budget:
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 + math.cos(math.pi * used / budget)) / 2
        chosen = rng.choice(len(parts["train"]), BATCH, replace=False)
        *inputs, truth, inner = batch([parts["train"][i] for i in chosen])
        loss = (model(*inputs)[:, 0] - truth)[inner].square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps, used = steps + 1, time.process_time() - begin
    return model.eval(), steps, used


def error_with(model: nn.Module, meshes: list[Mesh]) -> float:
    """Return the error of a network."""

    @torch.no_grad()
    def predict(m: Mesh) -> np.ndarray:
        *inputs, _, _ = batch([m])
        return model(*inputs)[:, 0].numpy()

    return error_of(meshes, predict)


def batch(meshes: list[Mesh]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return features, edges, their geometry, numbers of graphs, truth and inner nodes."""
    sizes = np.array([len(m.points) for m in meshes])
    points, types, truth = (
        np.concatenate([getattr(m, n) for m in meshes]) for n in ("points", "types", "potential")
    )
    first = np.cumsum(sizes) - sizes
    edges = np.concatenate([m.edges + at for m, at in zip(meshes, first, strict=True)], 1)
    inner = types == INNER
    stated = np.where(inner, 0, truth)
    x = np.column_stack([points, stated, np.eye(3)[types]])
    way = points[edges[0]] - points[edges[1]]
    geometry = np.column_stack([way, np.hypot(*way.T)]) * RINGS
    tensors = x.astype(np.float32), edges, geometry.astype(np.float32)
    graph = np.repeat(np.arange(len(meshes)), sizes)
    rest = graph, truth.astype(np.float32), inner
    return tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in (*tensors, *rest))  # type: ignore[return-value]

"""One process of `mesh_graph_net`: `plain MESH RECORD`, or `part FOLDER RECORDS` by `launch`.

The network is MeshGraphNet at its published size (Pfaff et al. 2021, section 3.2 and A.1): 15
message passing steps of width 128, two hidden layers, layer norms, residuals; written as people
write it with torch-geometric. Layers are recomputed in the backward pass, in one process and four.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from _measure import memory_mib
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import MessagePassing

NODES, PARTS, SEED = int(os.environ.get("MESH_NODES", 100_000)), 4, 0
STEPS, WIDTH = 15, 128
# DeepMind's cylinder-flow layout: a channel of 1.6 x 0.41 with a cylinder, in metres, and the types
# of nodes normal, inflow, outflow and wall, of nine.
CHANNEL, CENTRE, RADIUS = (1.6, 0.41), (0.33, 0.2), 0.05
TYPES, NORMAL, INFLOW, OUTFLOW, WALL = 9, 0, 4, 5, 6


def triangles(num_nodes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions (N, 2), cells (C, 3) and types (N,) of a mesh of the channel."""
    from scipy.spatial import Delaunay

    rng = np.random.default_rng(seed)
    step = np.sqrt((CHANNEL[0] * CHANNEL[1] - np.pi * RADIUS**2) / num_nodes)
    x, y = (np.linspace(0, n, round(n / step)) for n in CHANNEL)
    grid = np.stack(np.meshgrid(x, y, indexing="ij"), -1)
    grid[1:-1, 1:-1] += rng.uniform(-0.3, 0.3, grid[1:-1, 1:-1].shape) * step
    points = grid.reshape(-1, 2)
    points = points[np.hypot(*(points - CENTRE).T) > RADIUS + 0.5 * step]
    angles = np.linspace(0, 2 * np.pi, round(2 * np.pi * RADIUS / step), endpoint=False)
    circle = np.array(CENTRE) + RADIUS * np.stack([np.cos(angles), np.sin(angles)], -1)
    points = np.concatenate([points, circle])
    cells = Delaunay(points).simplices
    middle = points[cells].mean(1)
    cells = cells[np.hypot(*(middle - CENTRE).T) > RADIUS]
    types = np.full(len(points), NORMAL)
    types[(points[:, 1] <= 0) | (points[:, 1] >= CHANNEL[1])] = WALL
    types[-len(circle) :] = WALL
    types[(points[:, 0] <= 0) & (types != WALL)] = INFLOW
    types[(points[:, 0] >= CHANNEL[0]) & (types != WALL)] = OUTFLOW
    return points, cells, types


def write_mesh(folder: Path) -> tuple[Path, Path]:
    """Write edges with their geometry and nodes with velocity and type; return both files."""
    points, cells, types = triangles(NODES, SEED)
    pairs = np.concatenate([cells[:, [0, 1]], cells[:, [1, 2]], cells[:, [2, 0]]])
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    way = points[pairs[:, 0]] - points[pairs[:, 1]]
    length = np.hypot(*way.T)
    geometry = np.column_stack([way, length]) / length.mean()
    # Potential flow around the cylinder, and a target that depends on its neighbourhood.
    away = points - CENTRE
    distance = np.maximum(np.hypot(*away.T), RADIUS)
    angle = np.arctan2(away[:, 1], away[:, 0])
    share = (RADIUS / distance) ** 2
    velocity = np.column_stack([1 - share * np.cos(2 * angle), -share * np.sin(2 * angle)])
    target = np.column_stack([np.sin(3 * velocity[:, 0]), velocity[:, 1] * velocity[:, 0]])
    edges, nodes = folder / "edges.npz", folder / "nodes.npz"
    pair = np.ascontiguousarray(pairs.T, np.int64)
    np.savez(edges, edge_index=pair, edge_attr=geometry.astype(np.float32))
    x = np.column_stack([velocity, np.eye(TYPES)[types]]).astype(np.float32)
    y = target.astype(np.float32)
    np.savez(nodes, x=x, y=y, train=np.arange(len(points)))
    return edges, nodes


def perceptron(
    inputs: int, outputs: int, width: int = WIDTH, *, norm: bool = True
) -> nn.Sequential:
    layers = [nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    layers.append(nn.Linear(width, outputs))
    return nn.Sequential(*layers, *([nn.LayerNorm(outputs)] if norm else []))


class Layer(MessagePassing):
    """A message passing step: edges from both ends, then nodes from the sum of their edges."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__(aggr="add")
        self.edge = perceptron(3 * width, width, width)
        self.node = perceptron(2 * width, width, width)

    def forward(self, x: Tensor, edge_index: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        row, col = edge_index
        e = e + self.edge(torch.cat([x[row], x[col], e], dim=-1))
        out = self.propagate(edge_index, e=e, size=(x.size(0), x.size(0)))
        return x + self.node(torch.cat([x, out], dim=-1)), e

    def message(self, e: Tensor) -> Tensor:
        return e


class MeshGraphNet(nn.Module):
    """Encoder of nodes and edges, message passing, decoder of the change of velocity."""

    def __init__(
        self,
        inputs: int = 2 + TYPES,
        outputs: int = 2,
        steps: int = STEPS,
        width: int = WIDTH,
        *,
        recompute: bool = True,
    ) -> None:
        super().__init__()
        self.nodes, self.edges = perceptron(inputs, width, width), perceptron(3, width, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(steps))
        self.out = perceptron(width, outputs, width, norm=False)
        self.recompute = recompute

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x, e = self.nodes(x), self.edges(edge_attr)
        for layer in self.layers:
            if self.recompute:
                x, e = checkpoint(layer, x, edge_index, e, use_reentrant=False)
            else:
                x, e = layer(x, edge_index, e)
        return self.out(x)


def built() -> MeshGraphNet:
    torch.manual_seed(SEED)
    return MeshGraphNet()


def plain(edges: Path, nodes: Path, record: Path) -> None:
    """Loss and gradients by torch-geometric in one process."""
    torch.set_num_threads(1)
    with np.load(nodes) as file:
        x, y = torch.from_numpy(file["x"]), torch.from_numpy(file["y"])
    with np.load(edges) as file:
        pair, attr = torch.from_numpy(file["edge_index"]), torch.from_numpy(file["edge_attr"])
    model = built()
    before, begin = memory_mib("VmRSS"), time.process_time()
    loss = (model(x, pair, attr) - y).square().sum() / len(y)
    loss.backward()
    _write(record, model, float(loss.detach()), begin, before)


def part(folder: Path, records: Path) -> None:
    """Loss and gradients of this process's part of the partitioned mesh."""
    import torch.distributed as dist

    from scitoolkit.graphs.partitioned import PartitionedGraph
    from scitoolkit.graphs.proof import prove
    from scitoolkit.graphs.sharing import stored_features
    from scitoolkit.graphs.stored_part import StoredPart
    from scitoolkit.graphs.strategy import GraphTrainingConfig
    from scitoolkit.training.processes import process_group
    from scitoolkit.training.ranks.communicator import join

    torch.set_num_threads(1)
    with process_group(GraphTrainingConfig()):
        ranks = join()
        stored = StoredPart(PartitionedGraph.open(folder), ranks)
        x, y = stored_features(stored, "none"), torch.from_numpy(stored.files.read("y"))
        model = built()
        attached = prove(model, stored).attach(model, stored)
        before, begin = memory_mib("VmRSS"), time.process_time()
        loss = (attached(x, None) - y).square().sum() / stored.num_nodes
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        total = loss.detach().clone()
        dist.all_reduce(total)
        _write(records / f"{ranks.rank}.json", model, float(total), begin, before)


def _write(path: Path, model: nn.Module, loss: float, begin: float, before: float) -> None:
    record = {
        "loss": loss,
        "peak_mib": memory_mib(),
        "before_mib": before,
        "cpu_seconds": time.process_time() - begin,
    }
    path.write_text(json.dumps(record))
    torch.save([p.grad for p in model.parameters()], path.with_suffix(".pt"))


if __name__ == "__main__":
    from scitoolkit.training.launch import leave

    {"plain": plain, "part": part}[sys.argv[1]](*map(Path, sys.argv[2:]))
    leave(0)

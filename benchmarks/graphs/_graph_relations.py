"""One process of `graph_relations`: `plain GRAPH RECORD`, or `part FOLDER RECORDS` by `launch`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from _graph_stored import write_rmat
from _measure import memory_mib
from torch import nn

SCALE, EDGES, RELATIONS, PARTS = 20, 10_000_000, 8, 4
WIDTHS = 32, 32, 16
DTYPE = torch.float64


def write_graph(folder: Path) -> tuple[Path, Path]:
    """Write a typed R-MAT graph and its nodes; return the files of edges and nodes."""
    write_rmat(folder / "rmat.npy", SCALE, EDGES)
    r = np.random.default_rng(1)
    edges, nodes = folder / "edges.npz", folder / "nodes.npz"
    pairs = np.load(folder / "rmat.npy", mmap_mode="r")
    types = r.integers(RELATIONS, size=EDGES, dtype=np.int8)
    np.savez(edges, edge_index=np.ascontiguousarray(pairs.T), edge_type=types)
    (folder / "rmat.npy").unlink()
    x = r.standard_normal((1 << SCALE, WIDTHS[0]), dtype=np.float32)
    y = r.integers(WIDTHS[-1], size=1 << SCALE)
    np.savez(nodes, x=x, y=y, train=np.arange(1 << SCALE))
    return edges, nodes


def built() -> nn.Module:
    """Return the network: two relational convolutions of torch-geometric, after its example."""
    from scitoolkit.graphs.models import RGCN

    torch.manual_seed(0)
    model = RGCN(hidden=WIDTHS[1], dropout=0.0).for_graph(RELATIONS)
    return model.build(WIDTHS[0], WIDTHS[-1]).to(DTYPE)


def _norms(model: nn.Module) -> list[float]:
    return [float(p.grad.norm()) for p in model.parameters() if p.grad is not None]


def plain(edges: Path, nodes: Path, record: Path) -> None:
    """Loss and gradients by torch-geometric in one process."""
    torch.set_num_threads(1)
    with np.load(nodes) as file:
        x, y = torch.from_numpy(file["x"]).to(DTYPE), torch.from_numpy(file["y"])
    with np.load(edges) as file:
        pair = torch.from_numpy(file["edge_index"].astype(np.int64))
        types = torch.from_numpy(file["edge_type"].astype(np.int64))
    model = built()
    before = memory_mib("VmRSS")
    begin = time.process_time()
    loss = nn.functional.cross_entropy(model(x, pair, edge_type=types), y)
    loss.backward()
    _write(record, model, float(loss.detach()), begin, before)


def part(folder: Path, records: Path) -> None:
    """Loss and gradients of this process's part of the partitioned graph."""
    import torch.distributed as dist

    from scitoolkit.graphs.partitioned import PartitionedGraph
    from scitoolkit.graphs.sharing import stored_features
    from scitoolkit.graphs.stored_part import StoredPart
    from scitoolkit.graphs.strategy import GraphTrainingConfig
    from scitoolkit.graphs.task import NodeClassification, PartLoader
    from scitoolkit.training.processes import process_group
    from scitoolkit.training.ranks.communicator import join

    torch.set_num_threads(1)
    with process_group(GraphTrainingConfig()):
        ranks = join()
        stored = StoredPart(PartitionedGraph.open(folder), ranks)
        x = stored_features(stored, "none").to(DTYPE)
        place = np.arange(len(stored.nodes))
        loader = PartLoader.of_places(x, place, stored.files.read("y"), stored.num_nodes)
        model = built()
        task = NodeClassification(model, stored)
        before = memory_mib("VmRSS")
        begin = time.process_time()
        batch = next(iter(loader))
        # Each process returns the mean over its nodes; the trainer weighs it by their number.
        loss = task.loss(batch)[0] * task.batch_size(batch) / stored.num_nodes
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        total = loss.detach().clone()
        dist.all_reduce(total)
        _write(records / f"{ranks.rank}.json", model, float(total), begin, before)


def _write(path: Path, model: nn.Module, loss: float, begin: float, before: float) -> None:
    record = {
        "loss": loss,
        "gradient_norms": _norms(model),
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

"""Graphs on disk: partitioning in a separate process, and memory of training from the parts.

`python -m _graph_stored partition EDGES FOLDER MEMORY_MIB METHOD RECORD` and, by `launch`,
`python -m _graph_stored train FOLDER RECORDS`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from _measure import memory_mib

PARTS, WIDTHS, EPOCHS = 4, (64, 64, 16), 2
MIB = 1 << 20


def write_rmat(path: Path, scale: int, edges: int, seed: int = 0) -> None:
    """Write an R-MAT graph (Graph500's a, b, c) as (E, 2) int32, a block at a time."""
    r = np.random.default_rng(seed)
    block = 1 << 22
    out = np.lib.format.open_memmap(path, "w+", np.int32, (edges, 2))
    for begin in range(0, edges, block):
        count = min(block, edges - begin)
        source, target = np.zeros(count, np.int32), np.zeros(count, np.int32)
        for _ in range(scale):
            u = r.random(count, dtype=np.float32)
            source = 2 * source + (u > 0.76)
            target = 2 * target + (((u > 0.57) & (u <= 0.76)) | (u > 0.95))
        out[begin : begin + count] = np.stack([source, target], 1)
    out.flush()


def write_mesh(path: Path, side: int, *, shuffled: bool) -> None:
    """Write a square mesh with four neighbours a node, both directions, as (E, 2) int32."""
    nodes = np.arange(side * side, dtype=np.int32).reshape(side, side)
    right = np.stack([nodes[:, :-1].ravel(), nodes[:, 1:].ravel()], 1)
    down = np.stack([nodes[:-1].ravel(), nodes[1:].ravel()], 1)
    pairs = np.concatenate([right, down, right[:, ::-1], down[:, ::-1]])
    if shuffled:
        pairs = np.random.default_rng(3).permutation(side * side).astype(np.int32)[pairs]
    np.save(path, pairs)


def partition(edges: Path, folder: Path, memory: int, method: str, record: Path) -> None:
    """Partition and record peak memory, and bytes read and written by system calls."""
    from scitoolkit.graphs.partitioner import partition_edges

    before, begin = _transferred(), time.process_time()
    header = partition_edges(edges, folder, PARTS, memory=memory * MIB, method=method).header
    after = _transferred()
    size = edges.stat().st_size
    record.write_text(
        json.dumps(
            {
                "peak_mib": memory_mib(),
                "read_ratio": (after[0] - before[0]) / size,
                "written_ratio": (after[1] - before[1]) / size,
                "cut": header["cut"] / header["num_edges"],
                "cut_of_blocks": header["cut_of_blocks"] / header["num_edges"],
                "random_cut": header["random_cut"] / header["num_edges"],
                "method": header["method"],
                "cpu_seconds": time.process_time() - begin,
            }
        )
    )


def _transferred() -> tuple[int, int]:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    counts = dict(line.split(": ") for line in lines)
    return int(counts["rchar"]), int(counts["wchar"])


def train(folder: Path, records: Path) -> None:
    """Train a GCN on this process's part; record its peak memory and its share of the graph.

    The share: the part's edges, a column forward and one backward, and for own and halo rows the
    features, and each layer's products and sums with their gradients.
    """
    import torch

    from scitoolkit.graphs.models import GCN
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
        part = StoredPart(PartitionedGraph.open(folder), ranks)
        x = stored_features(part, "none")
        place = np.arange(len(part.nodes))
        loader = PartLoader.of_places(x, place, part.files.read("y"), part.num_nodes)
        torch.manual_seed(0)
        model = GCN(hidden=WIDTHS[1], dropout=0.0).build(WIDTHS[0], WIDTHS[2])
        task = NodeClassification(model, part)
        optimizer = torch.optim.Adam(model.parameters())
        batch = next(iter(loader))
        for _ in range(EPOCHS):
            optimizer.zero_grad()
            loss, _ = task.loss(batch)
            loss.backward()
            optimizer.step()
        nodes, record = len(part.nodes), part.files.record
        words = WIDTHS[0] + 2 * sum(2 * width for width in WIDTHS[1:])
        share = 8 * part.num_edges + 16 * nodes + 4 * words * (nodes + record["halo"])
        found = {"peak_mib": memory_mib(), "share_mib": share / MIB, "loss": float(loss.detach())}
        (records / f"{ranks.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    from scitoolkit.training.launch import leave

    if sys.argv[1] == "partition":
        edges, folder, memory, method, record = sys.argv[2:]
        partition(Path(edges), Path(folder), int(memory), method, Path(record))
    else:
        train(Path(sys.argv[2]), Path(sys.argv[3]))
    leave(0)

"""A relational graph convolution on a graph of 10 million edges, in four processes and in one.

torch-geometric computes the loss and all gradients of two `RGCNConv` in one process; the same
layers run on four processes, each of which reads its part of the partitioned graph only. Memory is
the largest resident size of a process, with Python, torch and the inputs.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import torch
from _graph_relations import EDGES, PARTS, RELATIONS, SCALE, WIDTHS, write_graph
from _measure import machine
from _places import importable

from scitoolkit.graphs.partitioner import partition_edges
from scitoolkit.training.launch import launch

# For each type of edges and layer a node keeps a row of 32 numbers of 8 bytes, and some ten rows
# more are held at the peak: 6.5 KiB. An edge has some 150 bytes: its message three times, its ends.
NODE_WEIGHT = 88


def run() -> dict:
    importable()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        edges, nodes = write_graph(folder)
        stored = partition_edges(
            edges, folder / "parts", PARTS, nodes=nodes, node_weight=NODE_WEIGHT
        )
        for ranks, arguments in (
            (1, ["plain", edges, nodes, folder / "plain.json"]),
            (PARTS, ["part", stored.path, folder]),
        ):
            if launch(ranks, [str(a) for a in arguments], module="_graph_relations"):
                raise AssertionError(f"{arguments[0]} on {ranks} processes failed")
        theirs = json.loads((folder / "plain.json").read_text())
        ours = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(PARTS)]
        gradients = torch.load(folder / "plain.pt"), torch.load(folder / "0.pt")
    differences = [abs(ours[0]["loss"] / theirs["loss"] - 1)] + [
        float((a - b).abs().max() / a.abs().max()) for a, b in zip(*gradients, strict=True)
    ]
    return {
        "edges": EDGES,
        "nodes": 1 << SCALE,
        "relations": RELATIONS,
        "widths": WIDTHS,
        "equal_max_relative": max(differences),
        "memory_share": max(record["peak_mib"] for record in ours) / theirs["peak_mib"],
        "cpu_seconds_over_plain": sum(r["cpu_seconds"] for r in ours) / theirs["cpu_seconds"],
        "cut": stored.header["cut"] / stored.header["num_edges"],
        "plain": {k: v for k, v in theirs.items() if k != "gradient_norms"},
        "parts": [{k: v for k, v in r.items() if k != "gradient_norms"} for r in ours],
        "machine": machine(),
    }

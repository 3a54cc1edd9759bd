"""MeshGraphNet at its published size on a mesh of 10^5 nodes, in four processes and in one.

A step's loss and all gradients by torch-geometric in one process, and by the same model on four,
each of which reads its part of the partitioned mesh only. Memory is the largest resident size of a
process, with Python, torch and the inputs. Numbers are float32, in which sums of edges in another
order differ by rounding: gradients are compared by the norm of the difference over the norm, for
each weight. $MESH_NODES sets another size.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from _measure import machine
from _mesh_graph_net import NODES, PARTS, STEPS, WIDTH, write_mesh
from _places import importable

from scitoolkit.graphs.partitioner import partition_edges
from scitoolkit.training.launch import launch


def run() -> dict:
    importable()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        edges, nodes = write_mesh(folder)
        stored = partition_edges(edges, folder / "parts", PARTS, nodes=nodes, target="values")
        for ranks, arguments in (
            (1, ["plain", edges, nodes, folder / "plain.json"]),
            (PARTS, ["part", stored.path, folder]),
        ):
            if launch(ranks, [str(a) for a in arguments], module="_mesh_graph_net"):
                raise AssertionError(f"{arguments[0]} on {ranks} processes failed")
        theirs = json.loads((folder / "plain.json").read_text())
        ours = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(PARTS)]
        gradients = torch.load(folder / "plain.pt"), torch.load(folder / "0.pt")
        with np.load(nodes) as file:
            num_nodes = len(file["x"])
    differences = [
        float((a - b).double().norm() / a.double().norm()) for a, b in zip(*gradients, strict=True)
    ]
    return {
        "asked_nodes": NODES,
        "nodes": num_nodes,
        "edges": stored.header["num_edges"],
        "message_passing_steps": STEPS,
        "width": WIDTH,
        "processes": PARTS,
        "loss_relative": abs(ours[0]["loss"] / theirs["loss"] - 1),
        "gradient_relative": max(differences),
        "memory_share": max(record["peak_mib"] for record in ours) / theirs["peak_mib"],
        "cpu_seconds_over_plain": sum(r["cpu_seconds"] for r in ours) / theirs["cpu_seconds"],
        "cut": stored.header["cut"] / stored.header["num_edges"],
        "plain": theirs,
        "parts": ours,
        "machine": machine(),
    }

"""Training on a mesh of processes: equality with one process, and received bytes.

A field transformer of four blocks is trained for three steps of AdamW with clipped gradients, in
float64, on eight processes (pipeline 2, data 2, tensor 2) and on one. `equal_error` is the largest
difference of a weight over the largest weight of its tensor. Bytes are counted at the calls of the
collectives of the second and third step, and divided by the formulas of `_mesh_rank.py`;
`bytes_over_formula` is the largest ratio over all ranks and three meshes, the smallest is printed
as well. `all_reduces_per_layer` counts the calls in a block, forward and backward.
`grid_over_zero` and `grid_over_megatron` compare the bytes of the grid 2 x 2 x 2 for a perceptron
with those of weights sharded over all processes (1 x 1 x 8), as ZeRO-3 does, and of tensor
parallelism (1 x 8 x 1). `experts_equal_error` and `experts_bytes_over_formula` are those of a
transformer with eight experts a block on four shares of the batch, two of which hold four each.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from _places import importable

FIELDS = {"pipeline": 2, "data": 2, "tensor": 2}
EXPERTS = {"data": 4, "expert": 2}
VECTORS = {"2x2x2": [2, 2, 2], "1x1x8": [1, 1, 8], "1x8x1": [1, 8, 1]}


def measured(ranks: int, cases: list[dict]) -> list[list[dict]]:
    """Return the results of cases by case and rank, of ranks in other processes."""
    from scitoolkit.training.launch import launch

    with tempfile.TemporaryDirectory() as folder:
        importable()
        code = launch(ranks, [folder, json.dumps(cases)], module="_mesh_rank")
        if code:
            raise RuntimeError(f"the ranks ended with exit code {code}")
        return [
            [torch.load(Path(folder) / f"{number}-{rank}.pt") for rank in range(ranks)]
            for number in range(len(cases))
        ]


def apart(results: list[dict], one: dict) -> float:
    """Return the largest difference of a weight on any rank from that of one process."""
    return max(
        float((result["weights"][name] - weight).abs().max() / weight.abs().max())
        for result in results
        for name, weight in one["weights"].items()
    )


def expert_bytes(results: list[dict], rank: int) -> float:
    """Return the bytes of a step that a rank receives for its experts, by what all ranks routed."""
    from _mesh_rank import EXPERTS as COUNT
    from _mesh_rank import STEPS, WIDTH

    ranks, own = EXPERTS["expert"], COUNT // EXPERTS["expert"]
    first, place = rank // ranks * ranks, rank % ranks
    here = slice(place * own, (place + 1) * own)
    others = [first + k for k in range(ranks) if k != place]
    arrive = sum(int(results[k]["rows"][:, here].sum()) for k in others)
    rows = results[rank]["rows"]
    leave = int(rows.sum()) - int(rows[:, here].sum())
    counts = len(rows) * COUNT * (ranks - 1) / ranks
    return 8 * (2 * (arrive + leave) * WIDTH + counts) / (STEPS - 1)


def run() -> dict:
    """Return the figures."""
    from _mesh_rank import trained

    fields = [
        {"network": "fields", "mesh": FIELDS},
        *({"network": "vectors", "mesh": {"tensor": grid}} for grid in VECTORS.values()),
    ]
    results = measured(8, fields)
    one = trained({"network": "fields", "mesh": {}})
    error = apart(results[0], one)
    experts = {"network": "experts", "blocks": 2, "mesh": EXPERTS}
    mixed = measured(4, [experts])[0]
    mixed_ratios = [
        result["bytes"] / (result["formula"] + expert_bytes(mixed, rank))
        for rank, result in enumerate(mixed)
    ]
    ratios = [result["bytes"] / result["formula"] for case in results for result in case]
    blocks = [
        measured(2, [{"network": "fields", "blocks": n, "mesh": {"tensor": 2}}])[0][0]["calls"]
        for n in (2, 4)
    ]
    received = {
        name: max(result["bytes"] for result in case)
        for name, case in zip(VECTORS, results[1:], strict=True)
    }
    return {
        "processes": 8,
        "equal_error": error,
        "ranks_bit_equal": all(
            torch.equal(result["weights"][name], weight)
            for result in results[0]
            for name, weight in results[0][0]["weights"].items()
        ),
        "bytes_over_formula": max(ratios),
        "least_bytes_over_formula": min(ratios),
        "experts_equal_error": apart(mixed, trained({**experts, "mesh": {}})),
        "experts_bytes_over_formula": max(mixed_ratios),
        "experts_least_bytes_over_formula": min(mixed_ratios),
        "all_reduces_per_layer": (blocks[1] - blocks[0]) / 2,
        "bytes_by_grid": received,
        "grid_over_zero": received["2x2x2"] / received["1x1x8"],
        "grid_over_megatron": received["2x2x2"] / received["1x8x1"],
    }


if __name__ == "__main__":
    sys.exit("python benchmarks/run.py mesh_strategy --json")

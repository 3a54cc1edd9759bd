"""Models of torch-geometric as users write them, on 1, 2 and 4 processes against the plain library.

The list holds the layers of `nn.conv`, norms and aggregations, the models of `nn.models`, and
models after the library's examples, the leaderboards of OGB and published networks. On each number
of processes the check at start runs, then three steps of training on another graph, whose loss,
gradients and gradient of the input are compared with those of the plain library.

A model is equal if both hold on 2 and 4 processes, refused if the check raises, and wrong if it
passes the check and its training differs, or if processes end. On one process nothing may be
refused that the plain library runs.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from _graph_models import constructible, runs_plainly
from _graph_ranks import run_models
from _graph_user_models import user_models

EXACT = 1e-10  # relative, float64
PROCESSES = (1, 2, 4)


def run() -> dict:
    names = [*constructible(), *user_models()]
    with tempfile.TemporaryDirectory() as folder:
        # One waiting process for each number of processes.
        with ProcessPoolExecutor(len(PROCESSES)) as pool:
            arguments = [names] * len(PROCESSES), PROCESSES, [Path(folder)] * len(PROCESSES)
            by_size = [*pool.map(run_models, *arguments)]
    # What the plain library does not run, or not to real numbers for each node, is not trained.
    names = [n for n in names if runs_plainly(by_size[0][n]["verdict"])]
    records = {n: [found[n] for found in by_size] for n in names}
    wrong = {n: text for n in names if (text := _wrong(records[n]))}
    refused = {n: sorted({r["verdict"] for r in records[n]} - {"equal"}) for n in names}
    refused = {n: why for n, why in refused.items() if why and n not in wrong}
    on_one = [n for n in names if by_size[0][n]["verdict"] != "equal"]
    equal = [n for n in names if n not in wrong and n not in refused]
    return {
        "models": len(names),
        "equal": len(equal),
        "equal_share": len(equal) / len(names),
        "wrong": len(wrong),
        "refused_on_one": len(on_one),
        "max_relative": max(r["error"] for n in equal for r in records[n]),
        "wrong_models": wrong,
        "refused": refused,
        "refused_on_one_models": on_one,
    }


def _wrong(records: list[dict]) -> str:
    """Return how a model is wrong, or an empty text."""
    for record in records:
        if record["verdict"].startswith("crash"):
            return record["verdict"]
        if record["verdict"] == "equal" and not record["error"] <= EXACT:
            return f"off by {record['error']:.1e}"
    return ""

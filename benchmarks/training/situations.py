"""Small trainings as users write them, under every strategy, compared with one process.

The situations are those of the tests: metric names by rank, conditional layers, experts, frozen
and tied weights, samplers and generators, partial and missing batches, averages with batch norm.
A situation is right if weights, best loss and validation metrics are those of one process, or if
all processes refuse it with a named error; a training that ends with other numbers is silent.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from _places import HELPERS

RANKS = (2, 3)


def run() -> dict:
    sys.path.insert(0, str(HELPERS))
    path = [str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    import training_situations as s

    problems: dict[str, str] = {}
    waits: list[float] = []
    strategies = [name for name in s.STRATEGIES if name != "single"]
    with tempfile.TemporaryDirectory() as folder:
        one = s.trained(1, ["single"], Path(folder))["single"]
        for ranks in RANKS:
            for strategy, several in s.trained(ranks, strategies, Path(folder)).items():
                waits += [o["seconds"] for o in several.values() if "error" in o]
                for name in s.SITUATIONS:
                    if text := s.difference(several[name], one[name], name, strategy):
                        problems[f"{name}, {strategy}, {ranks} processes"] = text
    refused = {key for key, text in problems.items() if text.startswith("refused")}
    return {
        "situations": len(s.SITUATIONS),
        "strategies": len(strategies),
        "trainings": len(s.SITUATIONS) * len(strategies) * len(RANKS),
        "silent": len(problems) - len(refused),
        "refused_unexpectedly": len(refused),
        "refused_by_rule": sum(
            s.may_refuse(name, strategy) for name in s.SITUATIONS for strategy in s.STRATEGIES
        )
        * len(RANKS),
        "longest_wait_seconds": round(max(waits), 2),
        "problems": problems,
    }

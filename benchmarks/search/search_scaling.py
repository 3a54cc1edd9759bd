"""1,000 simulated workers under one manager: its saturation, and the results of the strategies.

The workers and their trials (5 to 15 s, 10 s on average) exist on a simulated clock; the manager is
the real one with its log on disk, and its CPU time is added to that clock. The landscape is
synthetic: a smooth part, two interactions, and noise of the size of the gains, as is typical of
architectures. Busy shares and saturation are therefore measured; the curves compare strategies on
this landscape only. `workers_at_saturation` is trial length / cost of a trial to the manager.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

WORKERS, LIMIT, MEAN = 1000, 60.0, 10.0
MARKS = (15.0, 30.0, 45.0, 60.0)


def landscape(configuration) -> float:
    cells = configuration["model.architecture"]
    nodes, skips = cells["nodes"], {tuple(s) for s in cells["skips"]}
    value = sum((n - best) ** 2 for n, best in zip(nodes, (80, 48, 0, 64, 32), strict=True)) / 1e4
    value += 0.4 * ((0, 2) in skips and (2, 4) in skips) - 0.3 * ((1, 3) in skips)
    value += 0.2 * abs(len(skips) - 3)
    return value + random.Random(repr(configuration)).gauss(0.0, 0.1)


def seconds(task) -> float:
    return random.Random(task.trial).uniform(0.5 * MEAN, 1.5 * MEAN)


def measure(strategy) -> dict:
    from scitoolkit.search import Search, Simulated, spaces

    folder = Path(tempfile.mkdtemp(prefix="search-scaling-"))
    search = Search(spaces.pod_lstm, landscape, directory=folder, strategy=strategy)
    workers = Simulated(landscape, WORKERS, seconds, clock=time.thread_time)
    history = search.run(seconds=LIMIT, workers=workers)
    finished = sum(turn[0] for turn in search.own_seconds)
    own = sum(turn[2] for turn in search.own_seconds) / finished
    ends = [(t.spans[-1][1], t.values[0]) for t in history.done]
    return {
        "busy_share": history.busy_share(until=LIMIT),
        "trials": len(history.done),
        "own_ms_per_trial": 1e3 * own,
        "workers_at_saturation": round(MEAN / own),
        "best_so_far": {
            f"{mark:.0f}s": min((v for end, v in ends if end <= mark), default=None)
            for mark in MARKS
        },
    }


def run() -> dict:
    from scitoolkit.search import AgingEvolution, BayesianSearch, RandomSearch

    strategies = {
        "evolution": AgingEvolution(),
        "random": RandomSearch(),
        "bayesian": BayesianSearch(),
    }
    return {
        "workers": WORKERS,
        "mean_trial_seconds": MEAN,
        **{name: measure(strategy) for name, strategy in strategies.items()},
    }

"""Overhead of a search: ours and DeepHyper's, one after the other.

Trials of 1 to 3 s (2 s on average) sleep on 32 threads, for 20 s, on the space of the SC20 paper.
The busy share is that of the workers' time between the call and the time limit, from intervals
recorded by the trials, including those that DeepHyper cancels at the limit. 10,000 trials of zero
duration then pass through the same manager and log, to measure whether it slows down. A cost is CPU
time of the manager's thread; its wall time, which depends on the load, is also reported.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import threading
import time
import warnings
from pathlib import Path

WORKERS, LIMIT, MEAN = 32, 20, 2.0
LONG = 10_000


class Trials:
    """Sleeping trials that note when they ran."""

    def __init__(self):
        self.spans, self.lock, self.count = [], threading.Lock(), 0

    def run(self, arguments) -> float:
        with self.lock:
            self.count += 1
            seconds = MEAN * random.Random(self.count).uniform(0.5, 1.5)
            span = [time.monotonic(), None]
            self.spans.append(span)
        time.sleep(seconds)
        span[1] = time.monotonic()
        return sum(float(v) for v in arguments)

    def busy_share(self, begin: float) -> float:
        end = begin + LIMIT
        busy = sum(max(0.0, min(b or end, end) - a) for a, b in self.spans)
        return busy / (LIMIT * WORKERS)

    def summary(self, begin: float, end: float, cpu: float) -> dict:
        done = [b for _, b in self.spans if b is not None]
        return {
            "busy_share": self.busy_share(begin),
            "trials": len(done),
            "overrun_seconds": end - max([begin + LIMIT, *done]),
            "cpu_ms_per_trial": 1e3 * cpu / max(1, len(self.spans)),
        }


def ours(strategy) -> dict:
    from scitoolkit.search import Search, Threads, spaces

    trials = Trials()

    def evaluate(configuration):
        cells = configuration["model.architecture"]
        return trials.run([*cells["nodes"], len(cells["skips"])])

    folder = Path(tempfile.mkdtemp(prefix="search-overhead-"))
    search = Search(spaces.pod_lstm, evaluate, directory=folder, strategy=strategy)
    cpu, begin = time.process_time(), time.monotonic()
    history = search.run(seconds=LIMIT, workers=Threads(evaluate, WORKERS))
    end = time.monotonic()
    found = trials.summary(begin, end, time.process_time() - cpu)
    counted = sum(n for n, _, _ in search.own_seconds)
    return {
        **found,
        "own_ms_per_trial": 1e3 * sum(cpu for _, _, cpu in search.own_seconds) / counted,
        "own_wall_ms_per_trial": 1e3 * sum(wall for _, wall, _ in search.own_seconds) / counted,
        "duplicates": history.duplicates(),
    }


def deephyper(kind: str) -> dict:
    from deephyper.evaluator import Evaluator
    from deephyper.hpo import CBO, HpProblem, RandomSearch, RegularizedEvolution

    problem = HpProblem()
    for i in range(5):
        problem.add_hyperparameter([0, 16, 32, 48, 64, 80, 96], f"node{i}")
    for i in range(9):
        problem.add_hyperparameter([0, 1], f"skip{i}")
    trials = Trials()

    def run(job):
        return trials.run(job.parameters.values())

    made = {"random": RandomSearch, "evolution": RegularizedEvolution, "cbo_default": CBO}[kind]
    arguments = {"population_size": 20, "sample_size": 5} if kind == "evolution" else {}
    folder = tempfile.mkdtemp(prefix="search-deephyper-")
    evaluator = Evaluator.create(run, method="thread", method_kwargs={"num_workers": WORKERS})
    search = made(problem, random_state=0, log_dir=folder, **arguments)
    cpu, begin = time.process_time(), time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = search.search(evaluator, timeout=LIMIT)
    end = time.monotonic()
    found = trials.summary(begin, end, time.process_time() - cpu)
    parameters = [c for c in table.columns if c.startswith("p:")]
    return {**found, "duplicates": int(table[parameters].duplicated().sum())}


def long_log() -> dict:
    """Return the cost of the first and the last hundred of 10,000 trials."""
    from scitoolkit.search import AgingEvolution, Search, Simulated, spaces

    def evaluate(configuration):
        cells = configuration["model.architecture"]
        return sum(abs(n - 48) for n in cells["nodes"]) + len(cells["skips"])

    folder = Path(tempfile.mkdtemp(prefix="search-long-"))
    search = Search(spaces.pod_lstm, evaluate, directory=folder, strategy=AgingEvolution())
    simulated = Simulated(evaluate, WORKERS, lambda t: MEAN, charge=False)
    history = search.run(trials=LONG, workers=simulated)
    turns = [turn for turn in search.own_seconds if turn[0]]
    first, last = _cost(turns), _cost(turns[::-1])
    total = sum(t[2] for t in turns) / LONG
    return {
        "slowdown_last_100": last / first,
        "own_ms_per_trial_of_10000": 1e3 * total,
        "duplicates_of_10000": history.duplicates(),
        "log_megabytes_of_10000": (folder / "trials.jsonl").stat().st_size / 1e6,
    }


def _cost(turns) -> float:
    """Return the CPU seconds per trial over the first hundred trials of `turns`."""
    finished, seconds = 0, 0.0
    for count, _, cpu in turns:
        finished, seconds = finished + count, seconds + cpu
        if finished >= 100:
            break
    return seconds / finished


def run() -> dict:
    from scitoolkit.search import AgingEvolution, RandomSearch

    evolution = ours(AgingEvolution(population=20, tournament_size=5))
    sampled = ours(RandomSearch())
    peers = {kind: deephyper(kind) for kind in ("random", "evolution", "cbo_default")}
    rounds = [long_log() for _ in range(3)]
    long = rounds[0] | {
        name: statistics.median(r[name] for r in rounds)
        for name in ("slowdown_last_100", "own_ms_per_trial_of_10000")
    }
    return {
        "busy_share": min(evolution["busy_share"], sampled["busy_share"]),
        "own_ms_per_trial": max(evolution["own_ms_per_trial"], sampled["own_ms_per_trial"]),
        "own_wall_ms_per_trial": max(
            evolution["own_wall_ms_per_trial"], sampled["own_wall_ms_per_trial"]
        ),
        "duplicates": evolution["duplicates"] + sampled["duplicates"] + long["duplicates_of_10000"],
        "overrun_seconds": max(evolution["overrun_seconds"], sampled["overrun_seconds"]),
        **long,
        "workers": WORKERS,
        "time_limit_seconds": LIMIT,
        "evolution": evolution,
        "random": sampled,
        "deephyper": peers,
    }

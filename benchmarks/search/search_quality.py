"""Quality of the best of 60 trials: the default strategy, Optuna's samplers and DeepHyper's CBO.

Regrets are medians over seeds; the optimum moves with the seed, so that samplers that start in the
centre have no advantage. `over_best_peer_max` is the largest ratio, over the three functions, of
our median to the best peer's, and `over_best_peer_trainings` the same over two trainings
(`_search_trainings.py`), whose medians are errors, not regrets, over `training_seeds`. The
exploration rate of the Gaussian process was selected among three values on the scored seeds of the
functions; `ours_on_unused_seeds` are medians over the same number of unused seeds, and the
trainings were not used either. SEARCH_QUALITY_SEEDS sets the number of seeds;
SEARCH_QUALITY_PEERS=stored takes the peers' medians from the stored results of as many seeds.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from _places import PEERS, RESULTS
from _search_trainings import TRAININGS

PEER = PEERS / "optuna" / "bin" / "python"
SEEDS = int(os.environ.get("SEARCH_QUALITY_SEEDS", "20"))
TRAINING_SEEDS = min(SEEDS, 8)  # a training takes as long as hundreds of calls of a function
TRIALS, TIMED = 60, 120
SAMPLERS = ("tpe", "cma", "gp")

A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
HARTMANN_MINIMUM = 3.32237


def hartmann6(x, seed: int) -> float:
    """Hartmann's function of 6 variables in 0 ... 1, moved by up to a tenth."""
    moved = np.array(x) - np.random.default_rng([5, seed]).uniform(-0.1, 0.1, 6)
    waves = np.exp(-(A * (moved - P) ** 2).sum(axis=1))
    return float(HARTMANN_MINIMUM - np.array([1, 1.2, 3, 3.2]) @ waves)


def ackley5(x, seed: int) -> float:
    """Ackley's function of 5 variables in -20 ... 25, its optimum anywhere in the inner 80 %."""
    moved = np.array(x) - np.random.default_rng([7, seed]).uniform(-15.5, 20.5, 5)
    waves = np.cos(2 * np.pi * moved).mean()
    return float(20 - 20 * np.exp(-0.2 * np.sqrt((moved**2).mean())) - np.exp(waves) + math.e)


def mixed7(x, seed: int) -> float:
    """A training-like loss: three reals, two integers, two categories that interact."""
    rate, decay, dropout, layers, width, optimizer, activation = x
    a, b, c = np.random.default_rng([9, seed]).uniform(0.15, 0.85, 3)
    best_rate = -5 + 5 * a - (0, 0.8, 0.4)[optimizer]
    return float(
        0.3 * (math.log10(rate) - best_rate) ** 2
        + (0, 0.12, 0.05)[optimizer]
        + (0.1, 0, 0.2, 0.03)[activation]
        + 0.03 * (layers - 1 - round(9 * b)) ** 2
        + 0.08 * math.log2(width / 16 / 32**c) ** 2
        + (dropout - 0.3) ** 2
        + 0.05 * abs(math.log10(decay) + 5)
    )


# (kind, low, high, log) or ("choice", values)
FUNCTIONS = {
    "hartmann6": (hartmann6, [("real", 0.0, 1.0, False)] * 6),
    "ackley5": (ackley5, [("real", -20.0, 25.0, False)] * 5),
    "mixed7": (
        mixed7,
        [
            ("real", 1e-5, 1.0, True),
            ("real", 1e-7, 0.1, True),
            ("real", 0.0, 0.9, False),
            ("integer", 1, 10, False),
            ("integer", 16, 512, True),
            ("choice", [0, 1, 2]),
            ("choice", [0, 1, 2, 3]),
        ],
    ),
}
PROBLEMS = {**FUNCTIONS, **TRAININGS}


def seeds_of(name: str) -> range:
    """Return the seeds over which the median of a problem is taken."""
    return range(TRAINING_SEEDS if name in TRAININGS else SEEDS)


def space_of(name: str):
    from scitoolkit.search import Space, choice, integer, real

    makers = {"real": real, "integer": integer}
    parameters = {}
    for i, (kind, *rest) in enumerate(PROBLEMS[name][1]):
        if kind == "choice":  # texts: names of optimizers have no order
            parameters[f"x{i}"] = choice(*(f"v{value}" for value in rest[0]))
        else:
            low, high, log = rest
            parameters[f"x{i}"] = makers[kind](low, high, log=log)
    return Space(parameters)


def searched(name: str, seed: int, trials: int = TRIALS, workers: int = 1):
    """Return the search by the default strategy, and its history."""
    from scitoolkit.search import Search, Simulated

    function = PROBLEMS[name][0]

    def evaluate(configuration) -> float:
        values = configuration.values()
        return function([int(v[1:]) if isinstance(v, str) else v for v in values], seed)

    search = Search(space_of(name), evaluate, seed=seed)
    together = Simulated(
        evaluate, workers, lambda task: 1.0 + 0.01 * (task.trial % 7), charge=False
    )
    return search, search.run(trials=trials, workers=together if workers > 1 else 1)


def regrets(name: str, workers: int = 1, first: int = 0) -> list[float]:
    return [
        searched(name, first + seed, workers=workers)[1].best.values[0] for seed in seeds_of(name)
    ]


def ms_per_proposal() -> float:
    """Return the manager's CPU milliseconds per trial over the last 20 of 120 trials.

    The least of three searches: a shared core only adds to it.
    """
    found = []
    for _ in range(3):
        search, _ = searched("mixed7", 0, TIMED)
        turns = [turn for turn in search.own_seconds if turn[0]][-20:]
        found.append(sum(cpu for _, _, cpu in turns) / sum(count for count, _, _ in turns))
    return 1e3 * min(found)


def peer_medians() -> dict[str, dict[str, float]]:
    """Return the medians of Optuna's samplers (in their environment) and of DeepHyper's CBO."""
    arguments = [str(TRIALS)]
    stored = RESULTS / "search_quality.json"
    if os.environ.get("SEARCH_QUALITY_PEERS") == "stored" and stored.is_file():
        kept = json.loads(stored.read_text(encoding="utf-8"))
        known = set(PROBLEMS) <= set(next(iter(kept["peers"].values()), ()))
        if known and (kept["seeds"], kept["trials"]) == (SEEDS, TRIALS):
            return kept["peers"]
    if not PEER.exists():
        return {}
    samplers = Path(__file__).with_name("_search_peer.py")
    found = _medians_of([str(PEER), str(samplers), *arguments, *SAMPLERS])
    if importlib.util.find_spec("deephyper"):
        deephyper = Path(__file__).with_name("_search_peer_deephyper.py")
        found |= _medians_of([sys.executable, str(deephyper), *arguments])
    return found


def _medians_of(command: list[str]) -> dict[str, dict[str, float]]:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def largest(ratios: dict[str, float], names) -> float | str:
    return max(ratios[n] for n in names) if ratios else "peers are not installed"


def run() -> dict:
    ours = {name: regrets(name) for name in PROBLEMS}
    medians = {name: float(np.median(values)) for name, values in ours.items()}
    peers = peer_medians()
    best = {n: min(found[n] for found in peers.values()) for n in medians} if peers else {}
    ratios = {n: medians[n] / best[n] for n in best}
    return {
        **medians,
        "mixed7_q75": float(np.quantile(ours["mixed7"], 0.75)),
        "mixed7_four_workers": float(np.median(regrets("mixed7", workers=4))),
        "ms_per_proposal_120": ms_per_proposal(),
        "over_best_peer_max": largest(ratios, FUNCTIONS),
        "over_best_peer_trainings": largest(ratios, TRAININGS),
        "over_best_peer": ratios,
        "peers": peers,
        "ours_on_unused_seeds": {n: float(np.median(regrets(n, first=SEEDS))) for n in FUNCTIONS},
        "seeds": SEEDS,
        "training_seeds": TRAINING_SEEDS,
        "trials": TRIALS,
    }

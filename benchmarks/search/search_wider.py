"""Search with eight workers, of three objectives and of real trainings, beside other samplers.

- `eight_workers`: median regret of 60 trials by eight simulated workers, whose trials do not end
  in the order in which they began, on four functions of `search_unseen`.
- `hypervolume`: of the front after 60 trials over that of 20,000 random trials and all searches
  together, three problems of three objectives whose optimum moves with the seed.
- `trainings`: median validation error of the best of 40 trials of four trainings.

Peers are Optuna's samplers, and for several objectives BoTorch's qNEHVI where it is installed
(`optuna-integration`, `botorch`). SEARCH_WIDER_SEEDS sets the number of seeds,
SEARCH_WIDER_PEERS the peers (a list divided by commas: tpe,gp,nsga2,qnehvi).
"""

from __future__ import annotations

import functools
import heapq
import importlib.util
import math
import os
import warnings

import numpy as np
from _progress import Progress
from _search_trainings import FURTHER, TRAININGS
from search_unseen import FUNCTIONS, Observed, by_ours, moved

SEEDS = int(os.environ.get("SEARCH_WIDER_SEEDS", "8"))
PEERS = os.environ.get("SEARCH_WIDER_PEERS", "tpe,gp,nsga2,qnehvi").split(",")
TRIALS, TRAINING_TRIALS, WORKERS = 60, 40, 8
TRAINED = {**TRAININGS, **FURTHER}
FAMILIES = ("levy8", "rosenbrock5", "tree", "mixture")
SEVERAL = ("nsga2", "qnehvi")
"""Peers that are for several objectives only."""


def duration(trial: int) -> float:
    """Return the seconds of a simulated trial, those of `search_unseen.by_ours`."""
    return 1.0 + 0.01 * (trial % 7)


def optuna_study(
    sampler: str, seed: int, objectives: int, trials: int, workers: int, ask, evaluate
):
    """Return a finished study; `ask(trial)` draws a configuration, `evaluate` returns losses."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(
            sampler=sampler_of(sampler, seed, workers), directions=["minimize"] * objectives
        )
        running: list = []
        for number in range(trials + workers):
            now = 0.0
            if len(running) == workers or number >= trials:
                now, _, trial, losses = heapq.heappop(running)
                study.tell(trial, losses)
            if number < trials:
                trial = study.ask()
                losses = evaluate(ask(trial))
                heapq.heappush(running, (now + duration(number), number, trial, losses))
            elif not running:
                break
    return study


def sampler_of(name: str, seed: int, workers: int):
    import optuna

    if name == "qnehvi":
        from optuna_integration import BoTorchSampler
        from optuna_integration.botorch import qnehvi_candidates_func

        return BoTorchSampler(candidates_func=qnehvi_candidates_func, seed=seed)
    return {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, constant_liar=workers > 1),
        "gp": lambda: optuna.samplers.GPSampler(seed=seed),
        "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed, population_size=20),
    }[name]()


def asked(parameters):
    """Return the function that draws a configuration of `search_unseen`'s parameters."""

    def ask(trial) -> dict:
        configuration: dict = {}
        for parameter, (kind, *rest, when) in parameters.items():
            if any(configuration.get(other) not in on for other, on in when.items()):
                continue
            if kind == "choice":
                configuration[parameter] = trial.suggest_categorical(parameter, rest[0])
            else:
                suggest = trial.suggest_int if kind == "integer" else trial.suggest_float
                configuration[parameter] = suggest(parameter, rest[0], rest[1], log=rest[2])
        return configuration

    return ask


def regret_of(who: str, name: str, seed: int) -> float:
    observed = Observed(name, seed)
    if who == "ours":
        by_ours(name, observed, seed, workers=WORKERS)
    else:
        optuna_study(who, seed, 1, TRIALS, WORKERS, asked(FUNCTIONS[name][2]), observed)
    return observed.regret


# --- three objectives ------------------------------------------------------------------------


def sphere_front(x, seed):
    """DTLZ2 in six variables: the front is a part of a sphere."""
    far = ((x[2:] - 0.5 - moved(seed, 21, 4, 0.3)) ** 2).sum()
    a, b = x[:2] * math.pi / 2
    return (1 + far) * np.array([np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)])


def parted_front(x, seed):
    """DTLZ7 in six variables: the front has four parts."""
    far = 1 + 9 * np.abs(x[2:] - 0.5 - moved(seed, 22, 4, 0.4)).mean()
    waves = (x[:2] / (1 + far) * (1 + np.sin(3 * np.pi * x[:2]))).sum()
    return np.array([x[0], x[1], (1 + far) * (3 - waves) / 6])


def network_costs(x, seed):
    """Error, parameters and time of a training as a network's width, depth and rate have them."""
    a, b, c = np.random.default_rng([23, seed]).uniform(0.3, 0.7, 3)
    width, depth, rate, epochs, decay, dropout = x
    size = width**2 * (0.2 + depth)
    error = np.exp(-2 * size) + 2 * (rate - a * (1 - 0.4 * depth)) ** 2 + (decay - b) ** 2
    error += 0.3 * np.exp(-4 * epochs) + 0.5 * (dropout - c * width) ** 2
    return np.array([error, size, (0.05 + size) * (0.1 + epochs)])


PROBLEMS = {
    # Function of six numbers in 0 ... 1, and the point that bounds the volume.
    "sphere_front": (sphere_front, np.array([1.5, 1.5, 1.5])),
    "parted_front": (parted_front, np.array([1.0, 1.0, 2.5])),
    "network_costs": (network_costs, np.array([1.5, 1.2, 1.3])),
}


def hypervolume(points: np.ndarray, bound: np.ndarray) -> float:
    """Return the volume between three losses (point, 3) and a bound, by slices of the third."""
    inside = points[(points < bound).all(axis=1)]
    inside = inside[np.argsort(inside[:, 2])]
    volume = 0.0
    ends = np.append(inside[1:, 2], bound[2])
    front: list[tuple[float, float]] = []
    for (a, b, height), end in zip(inside, ends, strict=True):
        front = sorted([*front, (a, b)])
        area, lowest = 0.0, bound[1]
        for x, y in front:
            if y < lowest:
                area += (bound[0] - x) * (lowest - y)
                lowest = y
        volume += area * (end - height)
    return volume


def front_of(who: str, name: str, seed: int) -> list[list[float]]:
    """Return all losses of a search, or those of random configurations."""
    function = PROBLEMS[name][0]
    if who == "random":
        draws = np.random.default_rng([24, seed]).uniform(0, 1, (20_000, 6))
        losses = np.array([function(x, seed) for x in draws])
        bound = PROBLEMS[name][1]
        return reduced(losses[(losses < bound).all(axis=1)]).tolist()
    seen: list[list[float]] = []

    def evaluate(configuration) -> list[float]:
        seen.append(function(np.array([configuration[f"x{i}"] for i in range(6)]), seed).tolist())
        return seen[-1]

    if who == "ours":
        from scitoolkit.search import Search, real

        names = ("a", "b", "c")
        Search(
            {f"x{i}": real(0.0, 1.0) for i in range(6)},
            lambda c: dict(zip(names, evaluate(c), strict=True)),
            objectives=names,
            seed=seed,
        ).run(trials=TRIALS)
    else:
        ask = asked({f"x{i}": ("real", 0.0, 1.0, False, {}) for i in range(6)})
        optuna_study(who, seed, 3, TRIALS, 1, ask, evaluate)
    return seen


def reduced(losses: np.ndarray) -> np.ndarray:
    """Return the points (point, 3) that no other one dominates."""
    kept: list[np.ndarray] = []
    for point in losses[np.argsort(losses.sum(axis=1))]:
        if not any((other <= point).all() for other in kept):
            kept.append(point)
    return np.array(kept)


# --- real trainings --------------------------------------------------------------------------


def error_of(who: str, name: str, seed: int) -> float:
    function, parameters = TRAINED[name]
    space = {
        f"x{i}": ("choice", [f"v{v}" for v in rest[0]], {})
        if kind == "choice"
        else (kind, *rest, {})
        for i, (kind, *rest) in enumerate(parameters)
    }

    def evaluate(configuration) -> float:
        values = [configuration[f"x{i}"] for i in range(len(parameters))]
        return function([int(v[1:]) if isinstance(v, str) else v for v in values], seed)

    if who != "ours":
        study = optuna_study(who, seed, 1, TRAINING_TRIALS, 1, asked(space), evaluate)
        return study.best_value
    from scitoolkit.search import Search, choice, integer, real

    made = {
        n: choice(*rest[0])
        if kind == "choice"
        else {"real": real, "integer": integer}[kind](rest[0], rest[1], log=rest[2])
        for n, (kind, *rest) in space.items()
    }
    return Search(made, evaluate, seed=seed).run(trials=TRAINING_TRIALS).best.values[0]


def run() -> dict:
    progress = Progress("search_wider")
    installed = [
        p for p in PEERS if p != "qnehvi" or importlib.util.find_spec("optuna_integration")
    ]

    def over_seeds(what: str, compute, who: str, name: str) -> list:
        return [
            progress.part(f"{what} {who} {name} {s}", functools.partial(compute, who, name, s))[0]
            for s in range(SEEDS)
        ]

    alone = ["ours", *(p for p in installed if p not in SEVERAL)]
    regrets = {
        who: {n: float(np.median(over_seeds("workers", regret_of, who, n))) for n in FAMILIES}
        for who in alone
    }
    errors = {
        who: {n: float(np.median(over_seeds("training", error_of, who, n))) for n in TRAINED}
        for who in alone
    }
    together = ["ours", *installed]
    shares: dict[str, dict[str, float]] = {who: {} for who in together}
    for name, (_, bound) in PROBLEMS.items():
        fronts = {w: over_seeds("front", front_of, w, name) for w in ["random", *together]}
        for who in together:
            ratios = []
            for seed in range(SEEDS):
                best = reduced(np.concatenate([np.array(fronts[w][seed]) for w in fronts]))
                mine = np.array(fronts[who][seed])
                ratios.append(hypervolume(reduced(mine), bound) / hypervolume(best, bound))
            shares[who][name] = float(np.median(ratios))
    peers = [who for who in together if who != "ours"]
    return {
        "eight_workers": regrets,
        "trainings": errors,
        "hypervolume": shares,
        "no_worse_eight_workers": no_worse(regrets, FAMILIES, min),
        "no_worse_trainings": no_worse(errors, tuple(TRAINED), min),
        "no_worse_hypervolume": no_worse(shares, tuple(PROBLEMS), max),
        "peers": peers,
        "seeds": SEEDS,
        "trials": TRIALS,
    }


def no_worse(figures: dict[str, dict[str, float]], names: tuple[str, ...], best) -> str:
    """Return on how many problems ours is as good as the best peer, as `n of m`."""
    theirs = [who for who in figures if who != "ours"]
    good = [
        best(figures["ours"][n], best(figures[w][n] for w in theirs)) == figures["ours"][n]
        for n in names
        if theirs
    ]
    return f"{sum(good)} of {len(good)}"

"""Regret on twelve functions that no number of the searcher was chosen on, beside Optuna.

Levy in 8 variables, Schwefel in 4, Branin with noise, Rosenbrock in 5, Griewank in 6, Rastrigin in
4, Styblinski and Tang's in 6, Michalewicz's in 5, a tree of conditional parameters, logarithmic
integers, twenty categories, and a training-like mixture. The optimum moves with the seed, so that
searches that start in the centre or at a bound have no advantage. The regret is that of the trial
with the lowest loss as observed, without the noise. Every search has 60 trials and one worker.

`no_worse_than_gp` counts the functions whose median regret over the seeds is at most that of
Optuna's Gaussian process, and `cpu_share` is the CPU time of our searches divided by its.
SEARCH_UNSEEN_SEEDS sets the number of seeds, SEARCH_UNSEEN_FUNCTIONS the functions (a list
divided by commas), SEARCH_UNSEEN_PEERS=stored takes the peers from the stored results.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import warnings

import numpy as np
from _places import RESULTS
from _progress import Progress

SEEDS = int(os.environ.get("SEARCH_UNSEEN_SEEDS", "20"))
TRIALS = 60
STORED = RESULTS / "search_unseen.json"


def moved(seed: int, number: int, size: int, reach: float) -> np.ndarray:
    """Return where the optimum moves to: uniform numbers in -reach ... reach."""
    return np.random.default_rng([number, seed]).uniform(-reach, reach, size)


def levy8(x, seed):
    w = 1 + (x - moved(seed, 1, 8, 5.0)) / 4
    middle = ((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2)).sum()
    last = (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2)
    return np.sin(np.pi * w[0]) ** 2 + middle + last


def schwefel4(x, seed):
    # Its optimum is near a corner: the axes are turned over, so that it is in any of 16 corners.
    signs = np.where(moved(seed, 2, 4, 1.0) < 0, -1.0, 1.0)
    y = signs * x
    return 418.9828872724339 * 4 - (y * np.sin(np.sqrt(np.abs(y)))).sum()


def branin(x, seed):
    a, b = x + moved(seed, 3, 2, 2.0)
    wave = 10 * (1 - 1 / (8 * np.pi)) * np.cos(a)
    return (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + wave + 10 - 0.39788735773


def rosenbrock5(x, seed):
    y = x - moved(seed, 4, 5, 2.0)
    return (100 * (y[1:] - y[:-1] ** 2) ** 2 + (1 - y[:-1]) ** 2).sum()


def griewank6(x, seed):
    y = x - moved(seed, 5, 6, 30.0)
    return (y**2).sum() / 4000 - np.prod(np.cos(y / np.sqrt(np.arange(1, 7)))) + 1


def rastrigin4(x, seed):
    y = x - moved(seed, 6, 4, 3.0)
    return 40 + (y**2 - 10 * np.cos(2 * np.pi * y)).sum()


def styblinski6(x, seed):
    y = x - moved(seed, 7, 6, 1.5)
    return (y**4 - 16 * y**2 + 5 * y).sum() / 2 + 39.16616570377142 * 6


def michalewicz5(x, seed):
    y = x - moved(seed, 8, 5, 0.3)
    waves = np.sin(y) * np.sin(np.arange(1, 6) * y**2 / np.pi) ** 20
    return 4.687658 - waves.sum()


def tree(c, seed):
    """Three kinds of model with different parameters."""
    a, b, d, e = np.random.default_rng([9, seed]).uniform(0.2, 0.8, 4)
    if c["kind"] == "linear":
        return 0.3 + (math.log10(c["decay"]) / 5 + a) ** 2
    if c["kind"] == "trees":
        return 0.1 + (c["depth"] / 20 - b) ** 2 + (math.log2(c["leaves"]) / 8 - a) ** 2
    rate = math.log10(c["rate"]) / 5 + d
    loss = rate**2 * 4 + (c["layers"] / 8 - e) ** 2
    if c["optimizer"] == "momentum":
        return loss + (c["momentum"] - b) ** 2
    return loss + 0.05


def integers(c, seed):
    shares = np.random.default_rng([10, seed]).uniform(0.1, 0.9, 6)
    at = np.array([math.log2(c[f"n{i}"]) / 12 for i in range(6)])
    off = at - shares
    return float((off**2).sum() + (off[:-1] * off[1:]).sum())


def categories20(c, seed):
    rng = np.random.default_rng([11, seed])
    best = rng.integers(0, 3, 20)
    weights = rng.uniform(0.2, 1.0, 20)
    wrong = np.array([c[f"c{i}"] != "abc"[best[i]] for i in range(20)])
    return float((weights * wrong).sum() + 0.5 * (wrong[:-1] & wrong[1:]).sum())


def mixture(c, seed):
    """A training-like loss that diverges where the rate is too large for the momentum."""
    a, b, d = np.random.default_rng([12, seed]).uniform(0.2, 0.8, 3)
    rate = math.log10(c["rate"])
    limit = -0.5 - c["momentum"]
    if rate > limit:
        return 10.0 * (1 + rate - limit)
    width = math.log2(c["width"] / 8) / 6
    schedule = {"cosine": 0.0, "step": 0.08, "none": 0.15}[c["schedule"]]
    return (
        (rate + 1.6 + 2 * a) ** 2 / 4
        + (width - b) ** 2
        + (c["dropout"] - d * 0.5) ** 2
        + 0.2 * (c["momentum"] - d) ** 2
        + schedule
        + (0.1 if c["norm"] == "none" and width > 0.5 else 0.0)
    )


def reals(count, low, high):
    return {f"x{i}": ("real", low, high, False, {}) for i in range(count)}


def on_vector(function):
    return lambda c, seed: float(function(np.array([c[f"x{i}"] for i in range(len(c))]), seed))


NEURAL = {"kind": ["neural"]}
# By name: function of (configuration, seed), standard deviation of the noise, parameters.
FUNCTIONS = {
    "levy8": (on_vector(levy8), 0.0, reals(8, -10.0, 10.0)),
    "schwefel4": (on_vector(schwefel4), 0.0, reals(4, -500.0, 500.0)),
    "noisy_branin": (
        on_vector(branin),
        0.5,
        {"x0": ("real", -5.0, 10.0, False, {}), "x1": ("real", 0.0, 15.0, False, {})},
    ),
    "rosenbrock5": (on_vector(rosenbrock5), 0.0, reals(5, -5.0, 10.0)),
    "griewank6": (on_vector(griewank6), 0.0, reals(6, -50.0, 50.0)),
    "rastrigin4": (on_vector(rastrigin4), 0.0, reals(4, -5.12, 5.12)),
    "styblinski6": (on_vector(styblinski6), 0.0, reals(6, -5.0, 5.0)),
    "michalewicz5": (on_vector(michalewicz5), 0.0, reals(5, 0.0, math.pi)),
    "tree": (
        tree,
        0.0,
        {
            "kind": ("choice", ["linear", "trees", "neural"], {}),
            "decay": ("real", 1e-5, 1.0, True, {"kind": ["linear"]}),
            "depth": ("integer", 1, 20, False, {"kind": ["trees"]}),
            "leaves": ("integer", 1, 256, True, {"kind": ["trees"]}),
            "rate": ("real", 1e-5, 1.0, True, NEURAL),
            "layers": ("integer", 1, 8, False, NEURAL),
            "optimizer": ("choice", ["adam", "momentum"], NEURAL),
            "momentum": ("real", 0.0, 1.0, False, {"optimizer": ["momentum"]}),
        },
    ),
    "integers": (integers, 0.0, {f"n{i}": ("integer", 1, 4096, True, {}) for i in range(6)}),
    "categories20": (
        categories20,
        0.0,
        {f"c{i}": ("choice", ["a", "b", "c"], {}) for i in range(20)},
    ),
    "mixture": (
        mixture,
        0.0,
        {
            "rate": ("real", 1e-5, 1.0, True, {}),
            "momentum": ("real", 0.0, 0.99, False, {}),
            "width": ("integer", 8, 512, True, {}),
            "dropout": ("real", 0.0, 0.6, False, {}),
            "schedule": ("choice", ["cosine", "step", "none"], {}),
            "norm": ("choice", ["batch", "layer", "none"], {}),
        },
    ),
}
NAMES = os.environ.get("SEARCH_UNSEEN_FUNCTIONS", ",".join(FUNCTIONS)).split(",")


class Observed:
    """Calls of a function with noise; `regret` is the noiseless one at the lowest observation."""

    def __init__(self, name: str, seed: int) -> None:
        self.function, self.deviation, _ = FUNCTIONS[name]
        self.seed, self.calls = seed, []
        self.noise = np.random.default_rng([77, seed])

    def __call__(self, configuration) -> float:
        true = self.function(configuration, self.seed)
        value = true + self.deviation * float(self.noise.standard_normal())
        self.calls.append((value, true))
        return value

    @property
    def regret(self) -> float:
        return min(self.calls)[1]


def by_ours(name: str, observed: Observed, seed: int, workers: int = 1) -> None:
    from scitoolkit.search import Search, Simulated, choice, integer, real

    makers = {"real": real, "integer": integer}
    space = {}
    for parameter, (kind, *rest, when) in FUNCTIONS[name][2].items():
        if kind == "choice":
            space[parameter] = choice(*rest[0], when=when)
        else:
            space[parameter] = makers[kind](rest[0], rest[1], log=rest[2], when=when)
    together = Simulated(observed, workers, lambda t: 1.0 + 0.01 * (t.trial % 7), charge=False)
    Search(space, observed, seed=seed).run(trials=TRIALS, workers=together if workers > 1 else 1)


def by_optuna(sampler: str):
    def search(name: str, observed: Observed, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        made = {
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
            "gp": lambda: optuna.samplers.GPSampler(
                seed=seed, deterministic_objective=observed.deviation == 0
            ),
        }

        def objective(trial) -> float:
            configuration = {}
            for parameter, (kind, *rest, when) in FUNCTIONS[name][2].items():
                if any(configuration.get(other) not in on for other, on in when.items()):
                    continue
                if kind == "choice":
                    value = trial.suggest_categorical(parameter, rest[0])
                else:
                    suggest = trial.suggest_int if kind == "integer" else trial.suggest_float
                    value = suggest(parameter, rest[0], rest[1], log=rest[2])
                configuration[parameter] = value
            return observed(configuration)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study = optuna.create_study(sampler=made[sampler]())
            study.optimize(objective, n_trials=TRIALS)

    return search


def regret(search, name: str, seed: int, **more) -> float:
    observed = Observed(name, seed)
    search(name, observed, seed, **more)
    return observed.regret


def measured(progress: Progress, who: str, search, **more) -> dict:
    """Return medians and quartiles of the regret by function, and the CPU seconds of all."""
    regrets: dict[str, list[float]] = {name: [] for name in NAMES}
    spent = 0.0
    for seed, name in itertools.product(range(SEEDS), NAMES):
        value, seconds = progress.part(
            f"{who} {name} {seed}", functools.partial(regret, search, name, seed, **more)
        )
        regrets[name].append(value)
        spent += seconds
    return {
        "median": {name: float(np.median(values)) for name, values in regrets.items()},
        "q75": {name: float(np.quantile(values, 0.75)) for name, values in regrets.items()},
        "cpu_seconds": spent,
    }


def peers(progress: Progress) -> dict:
    if os.environ.get("SEARCH_UNSEEN_PEERS") == "stored" and STORED.is_file():
        stored = json.loads(STORED.read_text(encoding="utf-8"))
        if stored["seeds"] == SEEDS and set(NAMES) <= set(stored["optuna_gp"]["median"]):
            return {name: stored[name] for name in ("optuna_gp", "optuna_tpe")}
    return {
        f"optuna_{sampler}": measured(progress, f"optuna_{sampler}", by_optuna(sampler))
        for sampler in ("gp", "tpe")
    }


def run() -> dict:
    progress = Progress("search_unseen")
    ours = measured(progress, "ours", by_ours)
    theirs = peers(progress)
    ratio = {
        name: ours["median"][name] / max(theirs["optuna_gp"]["median"][name], 1e-300)
        for name in NAMES
    }
    return {
        "no_worse_than_gp": sum(
            ours["median"][n] <= theirs["optuna_gp"]["median"][n] for n in NAMES
        ),
        "no_worse_than_tpe": sum(
            ours["median"][n] <= theirs["optuna_tpe"]["median"][n] for n in NAMES
        ),
        "functions": len(NAMES),
        "names": ", ".join(NAMES),
        "cpu_share": ours["cpu_seconds"] / theirs["optuna_gp"]["cpu_seconds"],
        "over_gp": ratio,
        "ours": ours,
        "ours_eight_workers": measured(progress, "ours8", by_ours, workers=8),
        **theirs,
        "seeds": SEEDS,
        "trials": TRIALS,
    }

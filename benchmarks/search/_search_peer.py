"""Medians of Optuna's samplers: `python _search_peer.py TRIALS SAMPLER ...`, as JSON."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import optuna
from search_quality import PROBLEMS, seeds_of

warnings.filterwarnings("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
MAKE = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "cma": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed, deterministic_objective=True),
}


def regret(name: str, sampler: str, seed: int, trials: int) -> float:
    function, parameters = PROBLEMS[name]

    def objective(trial) -> float:
        values = []
        for i, (kind, *rest) in enumerate(parameters):
            if kind == "choice":
                values.append(trial.suggest_categorical(f"x{i}", rest[0]))
            else:
                suggest = trial.suggest_int if kind == "integer" else trial.suggest_float
                values.append(suggest(f"x{i}", rest[0], rest[1], log=rest[2]))
        return function(values, seed)

    study = optuna.create_study(sampler=MAKE[sampler](seed))
    study.optimize(objective, n_trials=trials)
    return study.best_value


def main() -> None:
    trials = int(sys.argv[1])
    found = {
        f"optuna {sampler}": {
            name: float(np.median([regret(name, sampler, s, trials) for s in seeds_of(name)]))
            for name in PROBLEMS
        }
        for sampler in sys.argv[2:]
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Medians of DeepHyper's CBO: `python _search_peer_deephyper.py SEEDS TRIALS`, as JSON.

Its own settings: extra-trees, UCBd with periodic decay, candidates by a genetic algorithm. A
proposal costs .4 CPU seconds, so only the first four seeds are run.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import warnings

import numpy as np
from deephyper.hpo import CBO, HpProblem
from search_quality import FUNCTIONS

warnings.filterwarnings("ignore")
MOST_SEEDS = 4


def regret(name: str, seed: int, trials: int) -> float:
    function, parameters = FUNCTIONS[name]
    problem = HpProblem()
    for i, (kind, *rest) in enumerate(parameters):
        if kind == "choice":
            problem.add_hyperparameter([f"v{value}" for value in rest[0]], f"x{i}")
        else:
            low, high, log = rest
            bounds = (low, high, "log-uniform") if log else (low, high)
            problem.add_hyperparameter(bounds, f"x{i}")
    with tempfile.TemporaryDirectory() as folder:
        search = CBO(problem, random_state=seed, log_dir=folder, checkpoint_history_to_csv=False)
        best = np.inf
        for _ in range(trials):
            (asked,) = search.ask(1)
            given = [asked[f"x{i}"] for i in range(len(parameters))]
            loss = function([int(v[1:]) if isinstance(v, str) else v for v in given], seed)
            best = min(best, loss)
            search.tell([(asked, -loss)])
    return float(best)


def main() -> None:
    seeds, trials = min(MOST_SEEDS, int(sys.argv[1])), int(sys.argv[2])
    with contextlib.redirect_stdout(sys.stderr):
        found = {
            name: float(np.median([regret(name, seed, trials) for seed in range(seeds)]))
            for name in FUNCTIONS
        }
    print(json.dumps({f"deephyper cbo, {seeds} seeds": found}))


if __name__ == "__main__":
    main()

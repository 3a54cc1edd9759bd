"""Medians of DeepHyper's CBO: `python _search_peer_deephyper.py TRIALS`, as JSON.

Default settings of DeepHyper: extra-trees, UCBd with periodic decay, candidates from a genetic
algorithm. A proposal costs 0.4 CPU seconds, so only the first four seeds are run.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import warnings

import numpy as np
from deephyper.hpo import CBO, HpProblem
from search_quality import PROBLEMS, seeds_of

warnings.filterwarnings("ignore")
MOST_SEEDS = 4


def regret(name: str, seed: int, trials: int) -> float:
    function, parameters = PROBLEMS[name]
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
    trials = int(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):
        seeds = {name: seeds_of(name)[:MOST_SEEDS] for name in PROBLEMS}
        found = {
            name: float(np.median([regret(name, seed, trials) for seed in seeds[name]]))
            for name in PROBLEMS
        }
    print(json.dumps({f"deephyper cbo, {MOST_SEEDS} seeds": found}))


if __name__ == "__main__":
    main()

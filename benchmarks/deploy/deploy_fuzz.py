"""2,000 random graphs of operators as C: equal to torch, or refused by name.

See `tests/helpers/random_graphs.py` for the graphs and their forms: float32, float64, 8, 4 and 2
bits, low rank. `wrong` counts numbers, NaN or statuses that differ where random rounding of every
operator decides nothing (`scitoolkit.deploy.random_rounding`), `undecided` graphs of which it
decides more than a fifth of the results, `raw_errors` exceptions that name no reason. One graph in
16 is compiled with the flags of an export, the others without optimisation, which would take hours.
$SCITOOLKIT_CASES sets the number of graphs.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from _places import HELPERS

sys.path.insert(0, str(HELPERS))
TOGETHER = 32
"""Graphs in one compilation."""


def run() -> dict:
    """Return the counts; see the module docstring."""
    from _measure import machine
    from exported import counts
    from random_graphs import FORMS

    cases = int(os.environ.get("SCITOOLKIT_CASES", 2000))
    # Each part has graphs of one form, as these are compiled together.
    numbers = sorted(range(cases), key=lambda n: FORMS[n % len(FORMS)])
    parts = [numbers[start : start + TOGETHER] for start in range(0, cases, TOGETHER)]
    options = [(part, place % 16 == 3) for place, part in enumerate(parts)]
    told: dict[str, str] = {}
    with multiprocessing.get_context("fork").Pool(2 * (os.cpu_count() or 1)) as pool:
        for done in pool.imap_unordered(_part, options):
            told |= done
            print(len(told), "graphs", counts(told), file=sys.stderr, flush=True)
    ended = counts(told)
    forms = {name.split(" ", 1)[1] for name in told}
    return {
        "graphs": len(told),
        "equal": ended["equal"],
        "refused": ended["refused"],
        "undecided": ended["undecided"],
        "wrong": ended["wrong"],
        "raw_errors": ended["raw"],
        "graphs_by_form": {f: sum(n.endswith(f" {f}") for n in told) for f in sorted(forms)},
        "not_equal": {name: text for name, text in sorted(told.items()) if text != "equal"},
        "machine": machine(),
    }


def _part(options: tuple[Sequence[int], bool]) -> dict[str, str]:
    import torch
    from random_graphs import graph_outcomes

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    numbers, optimised = options
    with tempfile.TemporaryDirectory() as folder:
        outcomes = graph_outcomes(numbers, Path(folder), TOGETHER, optimised=optimised)
    return {name: text.replace(f"{folder}/", "") for name, text in outcomes.items()}

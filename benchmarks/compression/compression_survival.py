"""Fields of all magnitudes, spreads, dims, dtypes, missing values, bounds and codecs.

Each of 10,000 fields is stored in a forked process: as a stream, behind the HDF5 filter, or in a
file. Each figure counts one kind of outcome: processes ended by a signal, exceptions that are not
refusals of a named codec, violated bounds (also missing values that are not restored bit for bit),
more bytes than the field has. `refused` counts named codecs that refuse the field, and ranges that
a few outliers set. $SCITOOLKIT_CASES sets the number of fields.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from _places import HELPERS

sys.path.insert(0, str(HELPERS))


def run() -> dict:
    """Return the counts; see the module docstring."""
    from _measure import machine
    from extreme_fields import load_libraries, outcome

    load_libraries()  # once, before the first fork
    cases = int(os.environ.get("SCITOOLKIT_CASES", 10_000))
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("fork")) as workers:
        ended = Counter(workers.map(outcome, range(cases), chunksize=50))
    return {
        "cases": cases,
        "signals": sum(count for how, count in ended.items() if how.startswith("signal")),
        "exceptions": ended["exception"],
        "violations": ended["violation"],
        "larger_than_field": ended["large"],
        "refused": ended["refused"],
        "holds": ended["holds"],
        "machine": machine(),
    }

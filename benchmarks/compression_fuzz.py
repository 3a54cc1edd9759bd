"""Compression of 10,000 fields of all magnitudes, spreads, dims, dtypes, bounds and codecs.

Every field is compressed in a forked process. Each figure counts one kind of outcome: processes
ended by a signal, exceptions that are not refusals of a named codec, violated bounds, streams
larger than the field. `refused` counts named codecs that refuse the field, and ranges that a few
outliers set. $SCITOOLKIT_CASES sets the number of fields.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))


def run() -> dict:
    """Return the counts; see the module docstring."""
    from _measure import machine
    from extreme_fields import outcome

    from scitoolkit.compression import compress

    compress([[0.0, 1.0]] * 99, rel=1e-3)  # imports once, before the first fork
    cases = int(os.environ.get("SCITOOLKIT_CASES", 10_000))
    ended = Counter(outcome(number) for number in range(cases))
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

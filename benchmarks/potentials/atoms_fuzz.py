"""Training files of atoms: 600 generated extxyz, deepmd and ASE files, half of them damaged.

Each file is read as a training reads it. A valid one is right if every frame has the species,
positions, cell, periodicity, labels and neighbours that it was made of, in eV and Å, and a first
batch has a finite loss; a damaged one has to be refused with the file and the frame. `silent`
counts files read as something else and faults that pass, `raw_errors` other exceptions,
`unnamed` refusals without file or frame, `valid_refused` valid files refused. $SCITOOLKIT_CASES
sets the number of files.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from _places import HELPERS

sys.path.insert(0, str(HELPERS))
FILES = 600


def run() -> dict:
    """Return the counts; see the module docstring."""
    from _measure import machine
    from odd_atoms import FAULTS, FORMATS, odd_file, outcome

    files = int(os.environ.get("SCITOOLKIT_CASES", FILES))
    ended: Counter[str] = Counter()
    for number in range(files):
        with tempfile.TemporaryDirectory() as folder:
            how, about = outcome(number, Path(folder))
        ended[how] += 1
        if how not in ("right", "refused"):
            print(how, about)
    damaged = {(file.format, file.fault) for n in range(files) if (file := odd_file(n)).fault}
    return {
        "files": files,
        "silent": ended["silent"],
        "raw_errors": ended["raw"],
        "unnamed": ended["unnamed"],
        "valid_refused": ended["valid refused"],
        "right": ended["right"],
        "refused": ended["refused"],
        "formats": len(FORMATS),
        "kinds_of_faults": len(FAULTS),
        "faults_by_format": len(damaged),
        "machine": machine(),
    }

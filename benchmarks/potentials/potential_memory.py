"""Memory per atom of MACE in inference, and the cost of streaming over blocks of receivers.

A process per precision builds an ASE calculator (64 channels, 52 neighbours), warms it up on a few
atoms, and then evaluates 10,000 and 100,000 atoms: memory is the growth of the peak over the memory
before, the neighbour list included, per atom, the larger of both. Flatness is the CPU time per atom
at 100,000 atoms, in the order of a grid, over that at 216. The streamed evaluation is compared with
the one that stores the radial weights of all edges, in reused buffers, alternating in one process.
Forces of both must agree first. One thread.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

SMALL, SIZES, STORED = (6, 6, 6), ((25, 20, 20), (50, 50, 40)), (12, 12, 12)
AGREE = {"float32": 1e-5, "float64": 1e-11}
ROUNDS = 3


def model(precision: str):
    import torch

    from scitoolkit.potentials import MaceConfig

    torch.set_num_threads(1)
    made = MaceConfig(precision=precision).build(["O", "H"]).eval()
    made.average_neighbours.fill_(52.0)
    return made


def microseconds(atoms) -> float:
    """Return CPU microseconds per atom of an evaluation with a reused neighbour list."""
    atoms.positions += 1e-4
    start = time.process_time()
    atoms.get_forces()
    return (time.process_time() - start) / len(atoms) * 1e6


def memory(precision: str) -> dict:
    """Return KB and microseconds an atom at each size; the process does nothing else."""
    import gc

    from _measure import memory_mib
    from potential_lammps import water_like

    from scitoolkit.potentials import Calculator

    made, found = model(precision), {}
    small = water_like(SMALL)
    small.calc = Calculator(made)
    small.get_forces()
    found["us_216"] = statistics.median(microseconds(small) for _ in range(9))
    for counts in SIZES:
        atoms = water_like(counts)
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = memory_mib("VmRSS")
        atoms.calc = Calculator(made)
        atoms.get_forces()
        found[f"us_{len(atoms)}"] = microseconds(atoms)
        found[f"kb_{len(atoms)}"] = (memory_mib() - before) * 1024 / len(atoms)
        del atoms
    return found


def stored(precision: str) -> dict:
    """Return CPU microseconds an atom with streamed and with stored radial weights."""
    import numpy as np
    from _measure import alternate, medians
    from potential_lammps import water_like

    from scitoolkit.potentials import Calculator
    from scitoolkit.potentials.equivariant import mace

    made, atoms, limit = model(precision), water_like(STORED), mace.STREAMED_ATOMS

    def forces(least: int):
        mace.STREAMED_ATOMS = least
        atoms.positions += 1e-9  # the results of before are not those of these atoms
        return atoms.get_forces()

    atoms.calc = Calculator(made)
    streamed, whole = forces(limit), forces(len(atoms) + 1)
    error = float(np.abs(streamed - whole).max() / np.abs(whole).max())
    if not error <= AGREE[precision]:
        raise RuntimeError(f"{precision}: streamed and stored forces differ by {error:.1e}")
    runs = {"streamed": lambda: forces(limit), "stored": lambda: forces(len(atoms) + 1)}
    times = medians(alternate(runs, ROUNDS))
    return {name: seconds / len(atoms) * 1e6 for name, seconds in times.items()}


def apart(name: str, precision: str) -> dict:
    """Return the result of a function of this file, run in a separate process."""
    code = f"import json, potential_memory as p; print(json.dumps(p.{name}({precision!r})))"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SCITOOLKIT_BUFFERS": "16384"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-800:])
    return json.loads(done.stdout.splitlines()[-1])


def run() -> dict:
    from _measure import machine

    used = {precision: apart("memory", precision) for precision in AGREE}
    times = {precision: apart("stored", precision) for precision in AGREE}
    large = f"us_{SIZES[-1][0] * SIZES[-1][1] * SIZES[-1][2]}"
    figures = {
        f"kb_per_atom_{precision}": max(v for k, v in found.items() if k.startswith("kb_"))
        for precision, found in used.items()
    }
    return {
        **figures,
        "flatness": max(found[large] / found["us_216"] for found in used.values()),
        "streamed_over_stored": max(each["streamed"] / each["stored"] for each in times.values()),
        **{f"{k}_{precision}": v for precision, found in used.items() for k, v in found.items()},
        **{f"{k}_us_{precision}": v for precision, each in times.items() for k, v in each.items()},
        **machine(),
    }

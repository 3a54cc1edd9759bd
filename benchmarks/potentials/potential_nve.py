"""Energy drift of a microcanonical run with the shipped potential of acetylacetone, in float64.

20 ps at 0.5 fs from a frame of the training set at 300 K, after 2 ps of Langevin thermostat. The
drift is the least-squares slope of the total energy; its uncertainty comes from the
scatter of the means of ten parts about that line.
"""

from __future__ import annotations

import time

from _places import ROOT

PICOSECONDS, STEP, EVERY, WARM, PARTS = 20.0, 0.5, 4, 2.0, 10


def run() -> dict:
    import ase.io
    import numpy as np
    import torch
    from _measure import machine
    from ase import units
    from ase.md.langevin import Langevin
    from ase.md.velocitydistribution import Stationary, ZeroRotation
    from ase.md.verlet import VelocityVerlet

    from scitoolkit.potentials import Calculator

    torch.set_num_threads(1)
    atoms = ase.io.read(ROOT / "datasets" / "acac" / "train_300K.xyz", 0)
    atoms.calc = Calculator("acac_mace", precision="float64", skin=0.5)
    rng = np.random.default_rng(0)
    speed = np.sqrt(units.kB * 300 / atoms.get_masses())[:, None]
    atoms.set_velocities(speed * rng.normal(size=(len(atoms), 3)))
    thermostat = Langevin(
        atoms, STEP * units.fs, temperature_K=300, friction=0.01 / units.fs, rng=rng, fixcm=False
    )
    thermostat.run(round(WARM * 1000 / STEP))
    Stationary(atoms)
    ZeroRotation(atoms)
    dynamics, totals, temperatures = VelocityVerlet(atoms, STEP * units.fs), [], []

    def record() -> None:
        totals.append(atoms.get_total_energy())
        temperatures.append(atoms.get_temperature())

    dynamics.attach(record, interval=EVERY)
    steps, start = round(PICOSECONDS * 1000 / STEP), time.process_time()
    dynamics.run(steps)
    seconds = time.process_time() - start
    energy = 1000 * (np.array(totals) - totals[0]) / len(atoms)  # meV an atom
    nanoseconds = np.arange(len(energy)) * EVERY * STEP * 1e-6
    slope, uncertainty = drift(nanoseconds, energy)
    return {
        "drift_mev_per_atom_per_ns": slope,
        "uncertainty_mev_per_atom_per_ns": uncertainty,
        "fluctuation_mev_per_atom": float(energy.std()),
        "change_of_halves_mev_per_atom": float(
            energy[len(energy) // 2 :].mean() - energy[: len(energy) // 2].mean()
        ),
        "mean_temperature": float(np.mean(temperatures)),
        "picoseconds": PICOSECONDS,
        "step_fs": STEP,
        "atoms": len(atoms),
        "ms_per_step": 1000 * seconds / steps,
        "cpu_seconds": seconds,
        **machine(),
    }


def drift(times, energies) -> tuple[float, float]:
    """Return the slope of energies, and its standard error from the residuals' means in parts."""
    import numpy as np

    slope, offset = np.polyfit(times, energies, 1)
    residuals = np.array_split(energies - slope * times - offset, PARTS)
    means = np.array([part.mean() for part in residuals])
    middles = np.array([part.mean() for part in np.array_split(times, PARTS)])
    spread = means.std(ddof=2) / np.sqrt(((middles - middles.mean()) ** 2).sum())
    return float(slope), float(spread)

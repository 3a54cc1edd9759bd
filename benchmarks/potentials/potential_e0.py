"""E0 of isolated atoms: energies of CuAu crystals at defaults, compared with mace-torch.

24 crystals of 4 atoms (EMT) and one frame of each isolated atom, about 4 eV an atom above, train a
MACE of 8 channels for 400 steps of 4 configurations; each program at its own defaults of learning
rate, loss weights and choice of the best weights. 60 other crystals are the test set; three seeds,
medians of the energy RMSE per atom. Then every kind of model is trained for 30 steps on such files,
and `lone_atom_error_ev` is the largest difference of a lone atom's energy from E0. One thread.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from _places import PEERS

PEER = PEERS / "mace" / "bin"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
E0 = {"Cu": 3.5, "Au": 3.8}
CRYSTALS, TESTS, SEEDS = 24, 60, 3
STEPS, BATCH, CUTOFF, CHANNELS = 400, 4, 4.0, 8
SHARE = 0.1
STEPS_PER_EPOCH = 5
"""Of mace-torch, which leaves out the last incomplete batch of 22 frames."""
NAMES = {"energy_key": "REF_energy", "forces_key": "REF_forces"}
MACE = {"name": "mace", "cutoff": CUTOFF, "channels": CHANNELS, "lmax": 2, "correlation": 2}
MACE |= {"lmax_hidden": 1, "layers": 2}
SMALL = {"cutoff": CUTOFF, "sel": [40, 40], "embedding": [4, 8], "fitting": [8]}
ATTENTION = {
    "name": "se_atten",
    "cutoff": CUTOFF,
    "sel": 60,
    "embedding": [4, 8],
    "axis_neurons": 4,
}
RADIAL = {"name": "se_e2_r", "cutoff": CUTOFF, "sel": [40, 40], "embedding": [4, 8]}
MODELS = {
    "mace": {**MACE, "channels": 4},
    "mace, first layer without residual": {**MACE, "channels": 4, "first_residual": False},
    "mace, float64, one layer": {**MACE, "channels": 4, "layers": 1, "precision": "float64"},
    "mace, densities": {**MACE, "channels": 4, "density": True, "first_density": True},
    "nequip": {"name": "nequip", "cutoff": CUTOFF, "channels": 4, "lmax": 1, "layers": 2},
    "se_e2_a": {"name": "se_e2_a", "axis_neurons": 4, **SMALL},
    "se_e2_r": {"name": "se_e2_r", **SMALL},
    "se_atten": {"name": "deep_potential", "descriptors": [ATTENTION], "fitting": [8]},
    "hybrid": {"name": "deep_potential", "descriptors": [ATTENTION, RADIAL], "fitting": [8]},
}
TEST = """
import sys
import ase.io, numpy as np
from mace.calculators import MACECalculator
calculator = MACECalculator(model_paths=sys.argv[1], device="cpu", default_dtype="float64")
errors = []
for atoms in ase.io.read(sys.argv[2], ":"):
    label = atoms.info["REF_energy"]
    atoms.calc = calculator
    errors.append((atoms.get_potential_energy() - label) / len(atoms))
print(1e3 * float(np.sqrt(np.mean(np.square(errors)))))
"""


def frames(number: int, first_seed: int) -> list:
    """Return rattled crystals of CuAu with EMT's labels under mace-torch's names."""
    from ase.build import bulk
    from ase.calculators.emt import EMT

    out = []
    for seed in range(first_seed, first_seed + number):
        atoms = bulk("Cu", "fcc", a=3.61, cubic=True)
        atoms[1].symbol = "Au"
        atoms.rattle(0.1, seed=seed)
        atoms.calc = EMT()
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        atoms.calc = None
        atoms.info["REF_energy"], atoms.arrays["REF_forces"] = energy, forces
        out.append(atoms)
    return out


def write_files(folder: Path) -> None:
    """Write train.xyz, with the isolated atoms, and test.xyz."""
    import ase
    import ase.io
    import numpy as np

    alone = []
    for name, energy in E0.items():
        atoms = ase.Atoms(name, info={"REF_energy": energy, "config_type": "IsolatedAtom"})
        atoms.arrays["REF_forces"] = np.zeros((1, 3))
        alone.append(atoms)
    ase.io.write(folder / "train.xyz", frames(CRYSTALS, 0) + alone)
    ase.io.write(folder / "test.xyz", frames(TESTS, 1000))


def trained(folder: Path, name: str, model: dict, seed: int, steps: int) -> Path:
    """Train one of our models on train.xyz; return its run directory."""
    from scitoolkit.core.run_directory import RunDirectory
    from scitoolkit.potentials import PotentialConfig
    from scitoolkit.potentials.job import PotentialJob

    config = PotentialConfig.model_validate(
        {
            "data": {
                "path": [str(folder / "train.xyz")],
                "test": [str(folder / "test.xyz")],
                "labels": NAMES,
            },
            "split": {"validation": SHARE},
            "seed": seed,
            "model": {**model, "seed": seed} if "seed" not in model else model,
            "training": {"steps": steps, "batch_size": BATCH, "seed": seed, "progress": False},
        }
    )
    run = RunDirectory.create(folder, name, config)
    PotentialJob().train(config, run)
    return Path(run.path)


def ours(folder: Path, seed: int) -> float:
    """Return our energy RMSE on the test frames, meV/atom."""
    from scitoolkit.potentials.job import PotentialJob

    path = trained(folder, f"ours{seed}", MACE, seed, STEPS)
    return float(PotentialJob().evaluate(path).metrics["energy_per_atom_rmse"])


def peers(folder: Path, seed: int) -> float:
    """Return mace-torch's energy RMSE on the test frames, meV/atom."""
    work = folder / f"mace{seed}"
    work.mkdir()
    options = {
        "name": "cuau",
        "train_file": folder / "train.xyz",
        "valid_fraction": SHARE,
        "model": "MACE",
        "hidden_irreps": f"{CHANNELS}x0e + {CHANNELS}x1o",
        "r_max": CUTOFF,
        "max_ell": 2,
        "correlation": 2,
        "num_interactions": 2,
        "batch_size": BATCH,
        "max_num_epochs": STEPS // STEPS_PER_EPOCH,
        "seed": seed,
        "device": "cpu",
    }
    call(["mace_run_train", *(f"--{name}={value}" for name, value in options.items())], work)
    return float(call(["python", "-c", TEST, work / "cuau.model", folder / "test.xyz"], work))


def call(command: list, folder: Path) -> str:
    """Run a program of mace-torch's environment; return the last line of its output."""
    done = subprocess.run(
        [str(PEER / command[0]), *map(str, command[1:])],
        cwd=folder,
        env=ONE_THREAD,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-1500:])
    return (done.stdout.strip().splitlines() or [""])[-1]


def lone_error(path: Path) -> float:
    """Return the largest difference of a lone atom's energy from E0, eV, as a calculator's user."""
    import ase

    from scitoolkit.potentials import Calculator

    energies = {
        name: ase.Atoms(name, calculator=Calculator(path)).get_potential_energy() for name in E0
    }
    return max(abs(energies[name] - energy) for name, energy in E0.items())


def run() -> dict:
    import torch
    from _measure import machine

    if not (PEER / "mace_run_train").exists():
        raise SystemExit("no .venv-peers/mace. Fix: make peers")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_files(folder)
        pairs = [(ours(folder, seed), peers(folder, seed)) for seed in range(SEEDS)]
        alone = {}
        for number, (name, model) in enumerate(MODELS.items()):
            path = trained(folder, f"lone{number}", model, 0, 30)
            alone[name] = lone_error(path)
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "energy_over_mace": mine / theirs,
        "lone_atom_error_ev": max(alone.values()),
        "energy_mev_per_atom": mine,
        "mace_energy_mev_per_atom": theirs,
        "energies_by_seed": json.loads(json.dumps(pairs)),
        "lone_atom_error_ev_by_model": alone,
        "steps": STEPS,
        "peer": "mace-torch 0.3.16, float64",
        "machine": machine(),
    }

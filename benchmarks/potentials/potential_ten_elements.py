"""A mace-torch model of ten elements, fine-tuned on two of them: what is learnt and forgotten.

`mace_run_train` trains a MACE of 8 channels on 160 alloy cells of ten elements (EMT), which stands
for a public foundation model; its `.model` file is converted and fine-tuned here on 50 cells of Cu
and Au. Their labels are EMT at positions scaled by 1.02, another level of theory. Test sets of 60
cells each, of both levels. Fine-tuning at its default rate, for 200 steps of 5 cells: with replayed
frames of the ten elements through a readout of their own, with them through one readout, without
replay, and with changes of rank 4 alone. Errors are of forces. `bytes_changed_of_absent` counts the
bytes of weights and E0 of the elements without frames that differ from the start. One thread.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from _places import ROOT
from potential_e0 import NAMES, PEER, call

ELEMENTS = ("H", "C", "N", "O", "Al", "Ni", "Cu", "Pd", "Ag", "Au")
NEW = ("Cu", "Au")
EDGE, SCALE = 3.9, 1.02
COUNTS = {"old_train": 160, "old_test": 60, "new_train": 50, "new_test": 60}
EPOCHS, STEPS, BATCH = 40, 200, 5
WAYS = {
    "own_readout": {"replay": ["old_train.xyz"], "replay_frames": 100, "heads": "separate"},
    "one_readout": {"replay": ["old_train.xyz"], "replay_frames": 100},
    "no_replay": {},
    "low_rank": {"low_rank": {"rank": 4}},
}


def write_files(folder: Path) -> None:
    """Write the four files of cells with EMT's labels under mace-torch's names."""
    import ase.io
    import numpy as np
    from ase.build import bulk
    from ase.calculators.emt import EMT

    rng = np.random.default_rng(0)
    for name, count in COUNTS.items():
        is_new = name.startswith("new")
        frames = []
        for _ in range(count):
            atoms = bulk("Cu", "fcc", a=EDGE * rng.uniform(0.97, 1.05), cubic=True)
            atoms.symbols[:] = list(rng.choice(NEW if is_new else ELEMENTS, len(atoms)))
            atoms.positions += rng.normal(size=(len(atoms), 3)) * 0.1
            scale = SCALE if is_new else 1.0
            labelled = atoms.copy()
            labelled.set_cell(atoms.cell * scale, scale_atoms=True)
            labelled.calc = EMT()
            atoms.info["REF_energy"] = labelled.get_potential_energy()
            atoms.arrays["REF_forces"] = scale * labelled.get_forces()
            frames.append(atoms)
        ase.io.write(folder / f"{name}.xyz", frames)


def foundation(folder: Path) -> Path:
    """Return the converted file of mace-torch's model of ten elements."""
    options = {
        "name": "ten",
        "train_file": folder / "old_train.xyz",
        "valid_fraction": 0.1,
        "E0s": "average",
        "model": "MACE",
        "hidden_irreps": "8x0e + 8x1o",
        "r_max": 4.0,
        "max_ell": 2,
        "correlation": 2,
        "num_interactions": 2,
        "batch_size": 10,
        "max_num_epochs": EPOCHS,
        "seed": 0,
        "device": "cpu",
    }
    call(["mace_run_train", *(f"--{name}={value}" for name, value in options.items())], folder)
    script = ROOT / "scitoolkit" / "potentials" / "peers" / "convert_mace.py"
    call(["python", "-W", "ignore", script, folder / "ten.model", folder / "ten.pt"], folder)
    return folder / "ten.pt"


def fine_tuned(folder: Path, name: str, start: dict) -> Path:
    """Fine-tune on the new cells; return the run directory."""
    from scitoolkit.core.run_directory import RunDirectory
    from scitoolkit.potentials import PotentialConfig
    from scitoolkit.potentials.job import PotentialJob

    own = {key: value for key, value in start.items() if key != "replay"}
    replay = [str(folder / file) for file in start.get("replay", [])]
    config = PotentialConfig.model_validate(
        {
            "data": {
                "path": [str(folder / "new_train.xyz")],
                "test": [str(folder / "new_test.xyz")],
                "labels": NAMES,
            },
            "start": {
                "path": str(folder / "ten.pt"),
                "former": [str(folder / "old_test.xyz")],
                "replay": replay,
                **own,
            },
            "training": {"steps": STEPS, "batch_size": BATCH, "progress": False},
        }
    )
    run = RunDirectory.create(folder, name, config)
    PotentialJob().train(config, run)
    return Path(run.path)


def changed_bytes(before, after) -> int:
    """Return how many bytes of weights and E0 of the other elements differ between two models."""
    absent = [k for k, name in enumerate(before.type_map) if name not in NEW]
    pairs = [*zip(before.species_weights(), after.species_weights(), strict=True)]
    pairs.append((before.get_buffer("shift"), after.get_buffer("shift")))
    return sum(
        int((mine[absent].detach().numpy() != theirs[absent].detach().numpy()).sum())
        * mine.element_size()
        for mine, theirs in pairs
    )


def run() -> dict:
    import torch
    from _measure import machine

    from scitoolkit.potentials import load_model, read_mace
    from scitoolkit.potentials.job import PotentialJob

    if not (PEER / "mace_run_train").exists():
        raise SystemExit("no .venv-peers/mace. Fix: make peers")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_files(folder)
        start = read_mace(foundation(folder))
        figures, changed = {}, 0
        for name, settings in WAYS.items():
            path = fine_tuned(folder, name, settings)
            metrics = PotentialJob().evaluate(path).metrics
            before = metrics["former_force_rmse_before"]
            figures[f"{name}_old_over_before"] = metrics["former_force_rmse"] / before
            figures[f"{name}_new_over_start"] = metrics["force_rmse"] / metrics["start_force_rmse"]
            if "replay" not in settings:
                changed += changed_bytes(start, load_model(path)[0])
    return {
        "old_force_error_over_before": figures["own_readout_old_over_before"],
        "bytes_changed_of_absent": changed,
        **figures,
        "old_force_rmse_before": before,
        "new_force_rmse_of_start": metrics["start_force_rmse"],
        "elements": len(ELEMENTS),
        "steps": STEPS,
        "peer": "mace-torch 0.3.16: the model of ten elements",
        "machine": machine(),
    }

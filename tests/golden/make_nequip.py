"""Models of nequip over its options, and a checkpoint of `nequip-train`, with energies and forces.

Run with the peer's interpreter, see `make peers`; without a seed the golden files are written
again: nequip_options.npz, nequip.ckpt and nequip.trained.npz.

.venv-peers/nequip/bin/python -W ignore tests/golden/make_nequip.py [TARGET.npz SEED]
"""

import itertools
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import yaml
from ase import Atoms
from ase.io import read
from nequip.data import compute_neighborlist_, from_ase
from nequip.data.transforms import ChemicalSpeciesToAtomTypeMapper
from nequip.model import ModelFromCheckpoint, NequIPGNNModel
from nequip.utils import get_current_code_versions
from nequip.utils.global_state import set_global_state

HERE = Path(__file__).parent
ACAC = HERE.parents[1] / "datasets" / "acac"
NAMES = ["H", "C", "O"]
SCALES, SHIFTS = {"H": 0.5, "C": 1.5, "O": 2.5}, {"H": -1.0, "C": -2.0, "O": -4.0}
ZBL = {
    "_target_": "nequip.nn.pair_potential.ZBL",
    "units": "metal",
    "chemical_species": NAMES,
}
CASES = {
    "plain": {"parity": False},
    "parity": {"num_layers": 4, "l_max": 1},
    "parity, degree 2": {"num_layers": 4, "l_max": 2, "num_features": 1},
    "pseudoscalars": {"num_layers": 6},  # they reach the energy over three layers
    "multiplicities": {"parity": False, "l_max": 2, "num_features": [4, 2, 3]},
    "narrow embedding": {"num_features": [3, 2], "type_embed_num_features": 2},
    "wide embedding": {"num_layers": 4, "num_features": [2, 1], "type_embed_num_features": 5},
    "repulsion": {"pair_potential": {**ZBL, "polynomial_cutoff_p": 5}, "num_layers": 1},
    "unscaled": {"per_type_energy_scales": None, "per_type_energy_shifts": None},
    "one number": {"per_type_energy_scales": 1.3, "per_type_energy_shifts": -2.0, "num_layers": 1},
    "radial": {"radial_mlp_depth": 3, "num_bessels": 5, "polynomial_cutoff_p": 4, "num_layers": 1},
}
CHOICES = {
    "parity": [False, True],
    "num_layers": [1, 2, 3, 4, 6],
    "l_max": [0, 1, 2, 3],
    "num_features": ["one", "falling", "rising"],
    "type_embed_num_features": [None, 1, 5],
    "radial_mlp_depth": [1, 2, 3],
    "num_bessels": [4, 8],
    "polynomial_cutoff_p": [2, 6],
    "pair_potential": [None, ZBL],
    "per_type_energy_scales": [None, 0.7, SCALES],
    "per_type_energy_shifts": [None, -3.0, SHIFTS],
    "per_type_energy_scales_trainable": [False, True],
    "avg_num_neighbors": [7.5, dict.fromkeys(NAMES, 6.0)],
    "compile_mode": ["eager", "compile"],
}
DEFAULTS = {
    "seed": 1,
    "model_dtype": "float64",
    "r_max": 3.0,
    "type_names": NAMES,
    "num_layers": 3,
    "l_max": 1,
    "num_features": 2,
    "radial_mlp_width": 4,
    "num_bessels": 4,
    "avg_num_neighbors": 7.5,
    "per_type_energy_scales": SCALES,
    "per_type_energy_shifts": SHIFTS,
}
TRAINING = {
    "run": ["train"],
    "data": {
        "_target_": "nequip.data.datamodule.ASEDataModule",
        "seed": 1,
        "split_dataset": {
            "file_path": "train.xyz",
            "train": 20,
            "val": 5,
            "test": 475,
        },
        "transforms": [
            {"_target_": "nequip.data.transforms.NeighborListTransform", "r_max": 4.0},
            {
                "_target_": "nequip.data.transforms.ChemicalSpeciesToAtomTypeMapper",
                "model_type_names": NAMES,
            },
        ],
        "train_dataloader": {"_target_": "torch.utils.data.DataLoader", "batch_size": 5},
        "val_dataloader": {"_target_": "torch.utils.data.DataLoader", "batch_size": 5},
        "stats_manager": {
            "_target_": "nequip.data.CommonDataStatisticsManager",
            "dataloader_kwargs": {"batch_size": 5},
            "type_names": NAMES,
        },
    },
    "trainer": {
        "_target_": "lightning.Trainer",
        "accelerator": "cpu",
        "max_epochs": 3,
        "logger": False,
        "enable_progress_bar": False,
        "callbacks": [
            {
                "_target_": "lightning.pytorch.callbacks.ModelCheckpoint",
                "dirpath": ".",
                "monitor": "val0_epoch/weighted_sum",
                "filename": "best",
            }
        ],
    },
    "training_module": {
        "_target_": "nequip.train.EMALightningModule",
        "ema_decay": 0.9,
        "loss": {
            "_target_": "nequip.train.EnergyForceLoss",
            "per_atom_energy": True,
            "coeffs": {"total_energy": 1.0, "forces": 1.0},
        },
        "val_metrics": {
            "_target_": "nequip.train.EnergyForceMetrics",
            "coeffs": {"total_energy_mae": 1.0, "forces_mae": 1.0},
        },
        "optimizer": {"_target_": "torch.optim.SGD", "lr": 0.002},
        "model": {
            "_target_": "nequip.model.NequIPGNNModel",
            "seed": 1,
            "model_dtype": "float64",
            "r_max": 4.0,
            "type_names": NAMES,
            "num_layers": 2,
            "l_max": 1,
            "parity": True,
            "num_features": 4,
            "radial_mlp_depth": 1,
            "radial_mlp_width": 8,
            "avg_num_neighbors": "${training_data_stats:num_neighbors_mean}",
            "per_type_energy_scales": "${training_data_stats:per_type_forces_rms}",
            "per_type_energy_shifts": {"H": -13.6, "C": -1027.0, "O": -2038.0},
            "pair_potential": ZBL,
        },
    },
}


def structure() -> Atoms:
    """Five atoms in a small periodic cell, two of them closer than their covalent radii."""
    positions = [[0.0, 0, 0], [0.9, 0, 0.1], [-0.24, 1.0, 0], [1.7, 1.9, 1.6], [2.2, 1.2, 1.9]]
    return Atoms("OHCHO", positions=positions, cell=[3.6, 3.8, 4.1], pbc=True)


def results(model: torch.nn.Module, atoms: Atoms) -> dict[str, np.ndarray]:
    """Energy and forces of nequip."""
    frame = compute_neighborlist_(from_ase(atoms), float(model.metadata["r_max"]))
    out = model(ChemicalSpeciesToAtomTypeMapper(model_type_names=NAMES)(frame))
    return {
        "energy": out["total_energy"].detach().numpy().reshape(()),
        "forces": out["forces"].detach().numpy(),
    }


def arrays_of(name: str, seed: int, options: dict) -> dict[str, np.ndarray]:
    """What one case adds to a file: settings, tensors, energy and forces."""
    settings = {**DEFAULTS, **options, "seed": seed}
    lmax = settings["l_max"]
    shapes = {
        "one": 2,
        "falling": [4 - k for k in range(lmax + 1)],
        "rising": [*range(1, lmax + 2)],
    }
    if isinstance(settings["num_features"], str):
        settings["num_features"] = shapes[settings["num_features"]]
    model = NequIPGNNModel(**settings)
    last = f"edge_mlp.mlp.{2 * settings.get('radial_mlp_depth', 1)}.weight"
    for key, parameter in model.named_parameters():
        if key.endswith(last):  # features of high degrees and both parities count in the forces
            parameter.data *= 6
    eager = NequIPGNNModel(**{**settings, "compile_mode": "eager"})
    eager.load_state_dict(model.state_dict())
    hyper = {
        "model": {"_target_": "nequip.model.NequIPGNNModel", **settings},
        "info_dict": {
            "versions": get_current_code_versions(verbose=False),
            "training_module": {"_target_": "nequip.train.NequIPLightningModule"},
        },
    }
    arrays = {f"{name}/hyper_parameters": np.array(json.dumps(hyper))}
    state = {f"model.sole_model.{key}": value for key, value in model.state_dict().items()}
    shapes = {key: list(value.shape) for key, value in state.items()}
    arrays[f"{name}/shapes"] = np.array(json.dumps(shapes))
    arrays[f"{name}/state"] = np.concatenate([value.numpy().ravel() for value in state.values()])
    for key, value in results(eager, structure()).items():
        arrays[f"{name}/{key}"] = value
    return arrays


def drawn(seed: int) -> dict[str, dict]:
    """Random cases: each value of each option at least once."""
    pick = random.Random(seed)
    rows = 3 * max(len(values) for values in CHOICES.values())
    columns = {}
    for key, values in CHOICES.items():
        column = list(itertools.islice(itertools.cycle(pick.sample(values, len(values))), rows))
        columns[key] = pick.sample(column, len(column))
    return {f"drawn {i}": {k: v[i] for k, v in columns.items()} for i in range(rows)}


def train(target: Path) -> None:
    """Write a checkpoint of nequip-train."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.yaml").write_text(yaml.safe_dump(TRAINING))
        Path(folder, "train.xyz").write_bytes((ACAC / "train_300K.xyz").read_bytes())
        program = Path(sys.executable).parent / "nequip-train"
        place = ["-cp", folder, "-cn", "train", f"hydra.run.dir={folder}", "hydra.job.chdir=true"]
        subprocess.run([program, *place], check=True, cwd=folder)
        target.write_bytes(Path(folder, "best.ckpt").read_bytes())


if __name__ == "__main__":
    set_global_state()
    if len(sys.argv) > 1:
        target, cases = Path(sys.argv[1]), drawn(int(sys.argv[2]))
        checkpoint = target.with_suffix(".ckpt")
    else:
        target, cases, checkpoint = HERE / "nequip_options.npz", CASES, HERE / "nequip.ckpt"
    arrays = {}
    for seed, (name, options) in enumerate(cases.items()):
        arrays |= arrays_of(name, seed, options)
    atoms = structure()
    arrays |= {"positions": atoms.positions, "cell": atoms.cell.array}
    arrays["species"] = np.array(atoms.get_chemical_symbols())
    np.savez_compressed(target, **arrays)
    train(checkpoint)
    model = ModelFromCheckpoint(str(checkpoint))["sole_model"].eval()
    frame = read(ACAC / "test_MD_300K.xyz", "0")
    np.savez_compressed(checkpoint.with_suffix(".trained.npz"), **results(model, frame))

"""Random models of mace-torch over its options: settings, weights, energies, forces and virials.

Run with the peer's interpreter, see `make peers`; without a seed the golden file is written again.

TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 .venv-peers/mace/bin/python tests/golden/make_mace_options.py \
    [TARGET.npz SEED]
"""

import importlib.util
import itertools
import json
import random
import sys
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from e3nn import o3
from mace import data, modules
from mace.tools import AtomicNumberTable, torch_geometric

HERE = Path(__file__).parent
CONVERTER = HERE.parents[1] / "scitoolkit" / "potentials" / "peers" / "convert_mace.py"
BLOCK = "RealAgnostic{}InteractionBlock"
NUMBERS = [1, 6, 8]
CASES = {
    "agnesi": {"distance_transform": "Agnesi"},
    "soft": {"distance_transform": "Soft", "power": 6},
    "density": {"first": "Density", "other": "DensityResidual"},
    "foundation": {
        "first": "DensityResidual",
        "other": "DensityResidual",
        "distance_transform": "Agnesi",
        "pair_repulsion": True,
    },
    "repulsion": {"pair_repulsion": True, "power": 3},
    "unscaled": {"pair_repulsion": True, "model": "MACE", "first": ""},
    "gaussian": {"radial_type": "gaussian", "gate": "tanh"},
    "chebyshev": {"radial_type": "chebyshev", "distance_transform": "Agnesi", "gate": "abs"},
    "no gate": {"gate": "None", "use_reduced_cg": False},
    "heads": {"heads": ["first", "second"], "pair_repulsion": True},
    "cutoff later": {"apply_cutoff": False, "first": "Density", "other": "Residual"},
    "not residual": {"first": "Residual", "other": "Density", "hidden": "3x0e"},
    "agnostic": {"use_agnostic_product": True, "use_last_readout_only": True},
    "three layers": {"layers": 3, "hidden": "2x0e+2x1o+2x2e"},
    "one layer": {"layers": 1, "correlation": 3, "hidden": "2x0e"},
}
CHOICES = {
    "model": ["MACE", "ScaleShiftMACE"],
    "first": ["", "Residual", "Density", "DensityResidual"],
    "other": ["", "Residual", "Density", "DensityResidual"],
    "distance_transform": ["None", "Agnesi", "Soft"],
    "radial_type": ["bessel", "gaussian", "chebyshev"],
    "pair_repulsion": [False, True],
    "apply_cutoff": [False, True],
    "gate": ["silu", "tanh", "abs", "None"],
    "power": [3, 5, 6],
    "heads": [["Default"], ["a", "b", "c"]],
    "layers": [1, 2, 3],
    "hidden": ["2x0e", "2x0e+2x1o"],
    "use_reduced_cg": [False, True],
    "use_agnostic_product": [False, True],
    "use_last_readout_only": [False, True],
}


def structure() -> Atoms:
    """Five atoms in a small periodic cell, two of them closer than their covalent radii."""
    positions = [[0.0, 0, 0], [0.9, 0, 0.1], [-0.24, 1.0, 0], [1.7, 1.9, 1.6], [2.2, 1.2, 1.9]]
    return Atoms("OHCHO", positions=positions, cell=[3.6, 3.8, 4.1], pbc=True)


def build(seed: int, options: dict) -> torch.nn.Module:
    """A model with random weights, shifts and scales."""
    case = {
        "model": "ScaleShiftMACE",
        "first": "Residual",
        "other": "Residual",
        "power": 5,
        "layers": 2,
        "hidden": "2x0e+2x1o",
        "correlation": 2,
        "gate": "silu",
        "heads": ["Default"],
        **options,
    }
    torch.manual_seed(seed)
    heads, kind = case.pop("heads"), case.pop("model")
    generator = np.random.default_rng(seed)
    several = (len(heads),) if len(heads) > 1 else ()
    first, other = (
        modules.interaction_classes[BLOCK.format(case.pop(k))] for k in ("first", "other")
    )
    arguments = {
        "r_max": 3.0,
        "num_bessel": 4,
        "num_polynomial_cutoff": case.pop("power"),
        "max_ell": 2,
        "interaction_cls_first": first,
        "interaction_cls": other,
        "num_interactions": case.pop("layers"),
        "num_elements": len(NUMBERS),
        "hidden_irreps": o3.Irreps(case.pop("hidden")),
        "MLP_irreps": o3.Irreps("3x0e"),
        "atomic_energies": generator.normal(size=(*several, len(NUMBERS))),
        "avg_num_neighbors": 7.5,
        "atomic_numbers": NUMBERS,
        "radial_MLP": [4],
        "heads": heads,
        "gate": modules.gate_dict[case.pop("gate")],
        **case,
    }
    if kind == "ScaleShiftMACE":
        arguments["atomic_inter_scale"] = generator.uniform(0.5, 1.5, several)
        arguments["atomic_inter_shift"] = generator.normal(size=several)
    return getattr(modules, kind)(**arguments)


def results(model: torch.nn.Module, head: int) -> dict[str, np.ndarray]:
    """Energy, forces and virial; the energy alone where mace-torch has no derivative."""
    config = data.config_from_atoms(structure())
    made = data.AtomicData.from_config(config, z_table=AtomicNumberTable(NUMBERS), cutoff=3.0)
    loader = torch_geometric.dataloader.DataLoader([made], batch_size=1)
    batch = next(iter(loader)).to_dict()
    batch["head"] = torch.tensor([head])
    forces = not hasattr(model.radial_embedding.bessel_fn, "n")
    out = model(batch, compute_virials=forces, compute_force=forces)
    keys = ("energy", "forces", "virials") if forces else ("energy",)
    return {key: out[key].detach().numpy() for key in keys}


def arrays_of(name: str, model: torch.nn.Module) -> dict[str, np.ndarray]:
    """What one case adds to a file."""
    spec = importlib.util.spec_from_file_location("convert_mace", CONVERTER)
    converter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(converter)
    found = {f"{name}/settings": np.array(json.dumps(converter.describe(model)))}
    for key, value in model.state_dict().items():
        found[f"{name}/state/{key}"] = value.numpy()
    for head, _ in enumerate(model.heads):
        for key, value in results(model, head).items():
            found[f"{name}/{head}/{key}"] = value
    return found


def drawn(seed: int) -> dict[str, dict]:
    """Random cases: each value of each option at least once."""
    pick = random.Random(seed)
    rows = max(len(values) for values in CHOICES.values())
    columns = {}
    for key, values in CHOICES.items():
        column = list(itertools.islice(itertools.cycle(pick.sample(values, len(values))), 3 * rows))
        columns[key] = pick.sample(column, len(column))
    cases = {f"drawn {i}": {k: v[i] for k, v in columns.items()} for i in range(3 * rows)}
    for case in cases.values():
        case["use_last_readout_only"] &= case["layers"] > 1
    return cases


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    target, seed = HERE / "mace_options.npz", 1
    cases = CASES
    if len(sys.argv) > 1:
        target, seed = Path(sys.argv[1]), int(sys.argv[2])
        cases = drawn(seed)
    atoms, arrays = structure(), {}
    for name, options in cases.items():
        made = build(seed, options)
        arrays.update(arrays_of(name, made))
        if target.parent != HERE and name == next(iter(cases)):
            torch.save(made, target.with_suffix(".model"))
    arrays.update(
        positions=atoms.positions,
        cell=atoms.cell.array,
        species=np.array(atoms.get_chemical_symbols()),
    )
    np.savez_compressed(target, **arrays)

"""Makes the golden files of mace-torch: run it with the peer's interpreter, see `make peers`.

TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 .venv-peers/mace/bin/python tests/golden/make_mace.py
"""

import json
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from e3nn import o3
from mace import data, modules
from mace.modules.symmetric_contraction import SymmetricContraction
from mace.tools import AtomicNumberTable, torch_geometric

HERE = Path(__file__).parent
CASES = {
    "cubic": {"irreps_in": "4x0e+4x1o+4x2e", "irreps_out": "4x0e+4x1o", "correlation": 3},
    "two-components": {"irreps_in": "2x0e+2x1o", "irreps_out": "2x1o", "correlation": 2},
}


def contraction(name: str) -> dict[str, np.ndarray]:
    """Inputs, weights in our order (output irrep, then order 1 to correlation) and outputs."""
    torch.manual_seed(0)
    case = CASES[name]
    module = SymmetricContraction(
        o3.Irreps(case["irreps_in"]),
        o3.Irreps(case["irreps_out"]),
        case["correlation"],
        num_elements=2,
    )
    weights = []
    for each in module.contractions:
        weights += [*reversed(each.weights), each.weights_max]
    channels, size = weights[0].shape[2], o3.Irreps(case["irreps_in"]).dim
    x = torch.randn(5, channels, size // channels)
    species = torch.tensor([0, 1, 1, 0, 1])
    out = module(x, torch.eye(2)[species])
    parts, start = [], 0
    for mul, irrep in o3.Irreps(case["irreps_out"]):
        part = out[:, start : start + mul * irrep.dim].reshape(5, mul, irrep.dim)
        parts.append(part.transpose(1, 2))
        start += mul * irrep.dim
    found = {
        "x": x.transpose(1, 2).contiguous(),
        "weight": torch.cat(weights, dim=1),
        "species": species,
        "out": torch.cat(parts, dim=1),
    }
    arrays = {f"{name}_{key}": value.detach().numpy() for key, value in found.items()}
    return {**arrays, f"{name}_case": np.array(json.dumps(case))}


def structure() -> Atoms:
    """Two water molecules in a small periodic cell: images of one atom are its neighbours."""
    positions = [
        [0.0, 0, 0],
        [0.96, 0, 0],
        [-0.24, 0.93, 0],
        [1.7, 1.9, 1.6],
        [2.2, 1.2, 1.9],
        [2.3, 2.6, 1.3],
    ]
    return Atoms("OHHOHH", positions=positions, cell=[3.6, 3.8, 4.1], pbc=True)


def model(name: str, residual: bool, correlation: int, hidden: str, degree: int) -> dict:
    """State dict, energy, forces and virial of a small untrained model in float64."""
    torch.manual_seed(1)
    first = "RealAgnosticResidualInteractionBlock" if residual else "RealAgnosticInteractionBlock"
    made = modules.ScaleShiftMACE(
        r_max=3.0,
        num_bessel=4,
        num_polynomial_cutoff=5,
        max_ell=degree,
        interaction_cls=modules.interaction_classes["RealAgnosticResidualInteractionBlock"],
        interaction_cls_first=modules.interaction_classes[first],
        num_interactions=2,
        num_elements=2,
        hidden_irreps=o3.Irreps(hidden),
        MLP_irreps=o3.Irreps("5x0e"),
        atomic_energies=np.array([-0.5, -2.0]),
        avg_num_neighbors=7.5,
        atomic_numbers=[1, 8],
        correlation=correlation,
        gate=torch.nn.functional.silu,
        radial_MLP=[8, 8],
        atomic_inter_scale=0.8,
        atomic_inter_shift=0.1,
    )
    table = AtomicNumberTable([1, 8])
    config = data.config_from_atoms(structure())
    batch = next(
        iter(
            torch_geometric.dataloader.DataLoader(
                [data.AtomicData.from_config(config, z_table=table, cutoff=3.0)],
                batch_size=1,
            )
        )
    )
    out = made(batch.to_dict(), compute_virials=True)
    found = {key: out[key].detach().numpy() for key in ("energy", "forces", "virials")}
    weights = {f"state/{key}": value.numpy() for key, value in made.state_dict().items()}
    return {f"{name}/{key}": value for key, value in {**found, **weights}.items()}


MODELS = {
    "residual": {"residual": True, "correlation": 3, "hidden": "4x0e+4x1o", "degree": 2},
    "plain": {"residual": False, "correlation": 2, "hidden": "3x0e", "degree": 3},
}


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    arrays = {}
    for name, options in MODELS.items():
        arrays.update(model(name, **options))
    atoms = structure()
    arrays.update(positions=atoms.positions, cell=atoms.cell.array, numbers=atoms.numbers)
    np.savez_compressed(HERE / "mace_models.npz", **arrays)
    arrays = {}
    for name in CASES:
        arrays.update(contraction(name))
    np.savez_compressed(HERE / "mace_symmetric_contraction.npz", **arrays)

"""Worker in mace-torch's environment: trains its MACE for a budget of CPU seconds, then tests it.

Reads one JSON object from stdin: {train, test: extxyz files, budget, model, recipe}; with `start`,
a .model file, instead of `model` its weights are fine-tuned. Prints
{energy_rmse_mev, force_rmse_mev_per_angstrom, steps, epochs, parameters, cpu_seconds}. Model, loss
and data pipeline are mace-torch's; the learning rate follows the same cosine as in our training, as
a function of the spent share of the budget. The mean of the energies is subtracted in float64
before the conversion to float32. The budget covers training steps only, not imports, neighbour
lists and the test.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings

import numpy as np
import torch


def read(path: str, shift: float | None) -> tuple[list, float]:
    """Return the graphs of a file and the mean energy that was subtracted."""
    from ase.io import read as read_frames
    from mace import data
    from mace.tools import AtomicNumberTable

    frames = read_frames(path, ":")
    energies = [frame.get_potential_energy() for frame in frames]
    shift = float(np.mean(energies)) if shift is None else shift
    table = AtomicNumberTable(sorted(set(frames[0].numbers)))
    graphs = []
    for frame, energy in zip(frames, energies, strict=True):
        frame.info["REF_energy"] = energy - shift
        frame.arrays["REF_forces"] = frame.get_forces()
        keys = data.KeySpecification(
            info_keys={"energy": "REF_energy"}, arrays_keys={"forces": "REF_forces"}
        )
        made = data.config_from_atoms(frame, key_specification=keys)
        graphs.append(data.AtomicData.from_config(made, z_table=table, cutoff=CUTOFF))
    return graphs, shift


CUTOFF = 5.0


def build(model: dict, graphs: list):
    from e3nn import o3
    from mace import modules

    forces = torch.cat([graph.forces for graph in graphs])
    edges = sum(graph.edge_index.shape[1] for graph in graphs)
    block = modules.interaction_classes["RealAgnosticResidualInteractionBlock"]
    kinds = graphs[0].node_attrs.shape[1]
    return modules.ScaleShiftMACE(
        r_max=CUTOFF,
        num_bessel=8,
        num_polynomial_cutoff=5,
        max_ell=model["degree"],
        num_interactions=2,
        interaction_cls=block,
        interaction_cls_first=block,
        num_elements=kinds,
        hidden_irreps=o3.Irreps(model["hidden"]),
        MLP_irreps=o3.Irreps("16x0e"),
        gate=torch.nn.functional.silu,
        atomic_energies=np.zeros(kinds),
        avg_num_neighbors=edges / len(forces),
        atomic_numbers=list(range(kinds)),
        correlation=3,
        radial_MLP=model["radial"],
        atomic_inter_scale=float(forces.square().mean().sqrt()),
        atomic_inter_shift=0.0,
    )


def opened(file: str):
    """Return a saved model without its E0: labels have their mean subtracted."""
    model = torch.load(file, weights_only=False).float()
    model.atomic_energies_fn.atomic_energies.zero_()
    return model


def mean_error(model, graphs: list) -> float:
    """Return the mean energy that the weights leave unexplained, eV."""
    from mace.tools import torch_geometric

    batches = torch_geometric.dataloader.DataLoader(graphs, batch_size=10)
    errors = [
        b.energy - model(b.to_dict(), compute_force=False)["energy"].detach() for b in batches
    ]
    return float(torch.cat(errors).double().mean())


def train(model, graphs: list, budget: float, recipe: dict) -> tuple[int, float, float]:
    """Train until the budget is spent and leave the averaged weights; return steps, epochs, s."""
    from mace.modules.loss import WeightedEnergyForcesLoss
    from mace.tools import torch_geometric

    loader = torch_geometric.dataloader.DataLoader(
        graphs, batch_size=recipe["batch_size"], shuffle=True, drop_last=False
    )
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, recipe["lr"])
    average = [p.detach().clone() for p in parameters]
    loss_of, steps = WeightedEnergyForcesLoss(1.0, recipe["pref_f"]), 0
    start = time.process_time()
    while True:
        for batch in loader:
            spent = (time.process_time() - start) / budget
            if spent >= 1:
                with torch.no_grad():
                    for p, a in zip(parameters, average, strict=True):
                        p.copy_(a)
                return steps, steps / len(loader), time.process_time() - start
            factor = 0.5 * (1 + math.cos(math.pi * spent))
            factor *= min(1.0, (steps + 1) / (recipe["warmup_steps"] + 1))
            limit, first = recipe["limit_pref_e"], recipe["start_pref_e"]
            # Ours divides (energy error)² by the atoms, mace-torch by their square.
            weight = (limit + (first - limit) * factor) * recipe["atoms"]
            loss_of.energy_weight.fill_(weight)
            for group in optimizer.param_groups:
                group["lr"] = recipe["lr"] * factor
            optimizer.zero_grad(set_to_none=True)
            loss_of(pred=model(batch.to_dict(), training=True), ref=batch).backward()
            torch.nn.utils.clip_grad_norm_(parameters, recipe["clip_norm"])
            optimizer.step()
            # As mace-torch's own average: few steps must not leave the first weights in it.
            decay = min(recipe["ema_decay"], (1 + steps) / (10 + steps))
            with torch.no_grad():
                torch._foreach_lerp_(average, parameters, 1 - decay)
            steps += 1


def test(model, graphs: list) -> dict:
    from mace.tools import torch_geometric

    energy, force = [], []
    for batch in torch_geometric.dataloader.DataLoader(graphs, batch_size=10):
        found = model(batch.to_dict(), training=False)
        energy.append((found["energy"] - batch.energy).detach())
        force.append((found["forces"] - batch.forces).detach())
    return {
        "energy_rmse_mev": 1e3 * float(torch.cat(energy).square().mean().sqrt()),
        "force_rmse_mev_per_angstrom": 1e3 * float(torch.cat(force).square().mean().sqrt()),
    }


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    torch.manual_seed(request["recipe"]["seed"])
    graphs, shift = read(request["train"], None)
    model = build(request["model"], graphs) if "start" not in request else opened(request["start"])
    offset = mean_error(model, graphs) if "start" in request else 0.0
    for graph in graphs:
        graph.energy -= offset
    steps, epochs, seconds = train(model, graphs, request["budget"], request["recipe"])
    held, _ = read(request["test"], shift + offset)
    found = test(model, held)
    print(
        json.dumps(
            {
                **found,
                "steps": steps,
                "epochs": epochs,
                "cpu_seconds": seconds,
                "parameters": sum(p.numel() for p in model.parameters()),
            }
        )
    )


if __name__ == "__main__":
    main()

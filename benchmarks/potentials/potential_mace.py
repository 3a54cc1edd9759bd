"""MACE: energy + forces and a training step compared with mace-torch, on 192 atoms of water.

Both run in the peer's interpreter (`make peers`), with the same weights (ours are read from the
peer's state dict), the same neighbours and float32, one thread; they alternate, CPU time, medians.
Neighbour lists are outside the timed calls on both sides. Before any timing, energies and forces
are compared with mace-torch in float64. A training step consists of the loss of energies and
forces, its gradient, and one step of Adam.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import warnings

from _places import BENCHMARKS, PEERS, ROOT

PEER = PEERS / "mace" / "bin" / "python"
WATER = ROOT / "datasets" / "water_deepmd" / "data_0"
CUTOFF, NEIGHBOURS = 5.0, 52.0
MODELS = {
    "small": {"hidden": "64x0e+64x1o", "degree": 2},
    "large": {"hidden": "64x0e+64x1o+64x2e", "degree": 3},
}
ROUNDS = {"small": (9, 5), "large": (5, 3)}
LIMIT = 1e-5  # relative, of energies and forces


def _peer(hidden: str, degree: int, dtype):
    import numpy as np
    import torch
    from e3nn import o3
    from mace import modules

    torch.set_default_dtype(dtype)
    torch.manual_seed(0)
    block = modules.interaction_classes["RealAgnosticResidualInteractionBlock"]
    made = modules.ScaleShiftMACE(
        r_max=CUTOFF,
        num_bessel=8,
        num_polynomial_cutoff=5,
        max_ell=degree,
        num_interactions=2,
        interaction_cls=block,
        interaction_cls_first=block,
        num_elements=2,
        hidden_irreps=o3.Irreps(hidden),
        MLP_irreps=o3.Irreps("16x0e"),
        gate=torch.nn.functional.silu,
        atomic_energies=np.array([-0.5, -2.0]),
        avg_num_neighbors=NEIGHBOURS,
        atomic_numbers=[1, 8],
        correlation=3,
        atomic_inter_scale=1.0,
        atomic_inter_shift=0.0,
    )
    torch.set_default_dtype(torch.float32)
    return made


def _peer_batch(frame, dtype):
    import torch
    from ase import Atoms
    from mace import data
    from mace.tools import AtomicNumberTable, torch_geometric

    torch.set_default_dtype(dtype)
    atoms = Atoms(list(frame.species), frame.positions, cell=frame.cell, pbc=frame.pbc)
    made = data.AtomicData.from_config(
        data.config_from_atoms(atoms), z_table=AtomicNumberTable([1, 8]), cutoff=CUTOFF
    )
    loader = torch_geometric.dataloader.DataLoader([made], batch_size=1)
    torch.set_default_dtype(torch.float32)
    return next(iter(loader)).to_dict()


class Contest:
    """One model in both codes on one frame."""

    def __init__(self, name: str, frame) -> None:
        import torch

        from scitoolkit.potentials import read_mace
        from scitoolkit.potentials.graph import configuration_graph

        self.exact, self.peer = (
            _peer(**MODELS[name], dtype=dtype) for dtype in (torch.float64, torch.float32)
        )
        self.peer.load_state_dict(self.exact.state_dict())
        self.ours = read_mace(self.exact)
        self.graph = configuration_graph(frame, self.ours.type_map, CUTOFF)
        self.batch = _peer_batch(frame, torch.float32)
        self.exact_batch = _peer_batch(frame, torch.float64)
        self.optimizers = {
            "ours": torch.optim.Adam(self.ours.parameters(), 1e-5),
            "mace": torch.optim.Adam(self.peer.parameters(), 1e-5),
        }

    def error(self) -> float:
        got, want = self.ours.eval()(self.graph), self.exact(self.exact_batch)
        pairs = [(got["energy"], want["energy"]), (got["forces"], want["forces"])]
        return max(float((a.double() - b.double()).abs().max() / b.abs().max()) for a, b in pairs)

    def _predict(self, who: str, training: bool) -> dict:
        if who == "ours":
            return self.ours.train(training)(self.graph)
        return self.peer(self.batch, training=training)

    def evaluate(self, who: str) -> dict:
        return self._predict(who, False)

    def train(self, who: str) -> None:
        optimizer = self.optimizers[who]
        optimizer.zero_grad(set_to_none=True)
        found = self._predict(who, True)
        loss = (found["energy"] / 192).square().sum() + found["forces"].square().mean()
        loss.backward()
        optimizer.step()


def _in_this_interpreter() -> dict:
    import torch
    from _measure import alternate

    from scitoolkit.io.atoms import open_atoms

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    frame = open_atoms([WATER])[0]
    figures: dict = {"atoms": len(frame.species)}
    for name in MODELS:
        contest = Contest(name, frame)
        error = contest.error()
        if not error <= LIMIT:
            raise SystemExit(f"{name}: error {error:.1e} above {LIMIT:.0e}")
        figures[f"relative_error_{name}"] = error
        figures["edges"] = contest.graph["edge_index"].shape[1]
        figures[f"parameters_{name}"] = sum(p.numel() for p in contest.ours.parameters())
        for work, key, rounds in zip(
            (contest.evaluate, contest.train),
            ("energy_forces", "train"),
            ROUNDS[name],
            strict=True,
        ):
            calls = {who: (lambda w=work, who=who: w(who)) for who in ("ours", "mace")}
            alternate(calls, 2)
            seconds = alternate(calls, rounds)
            medians = {who: statistics.median(each) for who, each in seconds.items()}
            for who, each in medians.items():
                figures[f"{who}_{key}_ms_{name}"] = 1e3 * each
            figures[f"{key}_speedup_{name}"] = medians["mace"] / medians["ours"]
        per_atom = 1e3 * figures[f"ours_energy_forces_ms_{name}"] / len(frame.species)
        figures[f"us_per_atom_{name}"] = per_atom
        print(name, json.dumps(figures), file=sys.stderr, flush=True)
    return figures


def run() -> dict:
    """Return the figures, measured in the peer's environment."""
    from _measure import machine

    if not PEER.exists():
        raise SystemExit("the peer mace-torch is not installed. Fix: make peers")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{BENCHMARKS}",
        "OMP_NUM_THREADS": "1",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
    }
    done = subprocess.run(
        [str(PEER), __file__], env=environment, stdout=subprocess.PIPE, check=True
    )
    return {**json.loads(done.stdout.splitlines()[-1]), "machine": machine()}


if __name__ == "__main__":
    print(json.dumps(_in_this_interpreter()))

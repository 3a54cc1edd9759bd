"""Rungs of `make gpu`: energy and forces of MACE and a Deep Potential against their authors' code.

`python _gpu_potentials.py mace|deepmd float32|float64`. Weights are the peer's, read by our reader;
neighbour lists are outside of the timed calls on both sides. Energies and forces are compared with
the peer's before any time is told.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from _gpu_timing import DEVICE, SMALL, alternate, attempt, seconds, tell
from _places import ROOT

WATER = ROOT / "datasets" / "water_deepmd" / "data_0"
HIDDEN, DEGREE, CUTOFF, NEIGHBOURS = "128x0e+128x1o", 3, 5.0, 52.0
LIMITS = {"float32": 1e-4, "float64": 1e-9}


def _frame(times: int):
    from potential_deepmd import repeated

    from scitoolkit.io.atoms import open_atoms

    frame = open_atoms([WATER])[0]
    return frame if times == 1 else repeated(frame, times)


def _on_device(batch: dict) -> dict:
    return {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}


def _error(ours: dict, theirs: dict) -> float:
    pairs = ((ours[k].detach(), theirs[k].detach()) for k in ("energy", "forces"))
    return max(
        float((a.double().reshape(-1) - b.double().reshape(-1)).abs().max() / b.abs().max())
        for a, b in pairs
    )


def _without_peer(dtype):
    from scitoolkit.potentials.equivariant.mace_config import MaceConfig

    config = MaceConfig(
        cutoff=CUTOFF,
        channels=128,
        lmax=DEGREE,
        lmax_hidden=1,
        precision=str(dtype).removeprefix("torch."),
    )
    return config.build(["H", "O"])


def mace(kind: str) -> None:
    """Compare with mace-torch: plain, with cuEquivariance and with OpenEquivariance."""
    from potential_mace import _peer, _peer_batch

    from scitoolkit.potentials import read_mace
    from scitoolkit.potentials.graph import configuration_graph

    dtype, frame = getattr(torch, kind), _frame(1 if SMALL else 2)
    plain = attempt("mace-torch", lambda: _peer(HIDDEN, DEGREE, dtype))
    ours = read_mace(plain, precision=kind) if plain is not None else _without_peer(dtype)
    ours = ours.to(DEVICE).eval()
    graph = _on_device(configuration_graph(frame, ours.type_map, CUTOFF))
    tell(atoms=len(frame.species), edges=graph["edge_index"].shape[1])
    first = attempt("ours", lambda: (seconds(lambda: ours(graph)), ours(graph)))
    if first is None:
        return
    tell(first_call_seconds=first[0])
    calls = _ours(ours, graph)
    if plain is not None:
        batch = _on_device(_peer_batch(frame, dtype))
        torch.set_default_dtype(dtype)
        makers = {
            "mace-torch": lambda: plain.to(DEVICE),
            "mace-torch + cuEquivariance": lambda: _converted("cueq", plain),
            "mace-torch + OpenEquivariance": lambda: _converted("oeq", plain),
        }
        for name, make in makers.items():
            peer = attempt(name, make)
            if peer is None:
                continue

            def call(peer=peer):
                return peer(dict(batch), training=False)

            theirs = attempt(name, call)
            if theirs is not None:
                tell(errors={name: _error(first[1], theirs)})
                calls[name] = call
    exact = _error_of_plain(first[1], calls)
    if not exact <= LIMITS[kind]:
        tell(missing={"agreement": f"differs from mace-torch by {exact:.1e}"})
        raise SystemExit(1)
    spent = alternate(calls, 3 if SMALL else 15)
    tell(milliseconds={name: 1e3 * value for name, value in spent.items()})
    _speedups(spent, fast=[n for n in spent if "+" in n], plain="mace-torch")


def _ours(model, graph: dict) -> dict:
    """Return the step recorded, as the calculator calls it, and with every kernel launched."""
    from scitoolkit.potentials.captured import CapturedCall

    recorded, inputs = CapturedCall(model), graph["positions"]

    def call():
        outputs = recorded({**graph, "positions": inputs})
        if recorded.refused:
            raise RuntimeError(f"not recorded: {recorded.refused}")
        return outputs

    eager = {"ours, not recorded": lambda: model(graph)}
    for _ in range(3):
        if attempt("ours, recorded", call) is None:
            return {"ours": eager["ours, not recorded"]}
    exact = _error(call(), model(graph))
    tell(recorded_error=exact, replays=recorded.replays)
    return {"ours": call, **eager}


def _error_of_plain(ours: dict, calls: dict) -> float:
    return _error(ours, calls["mace-torch"]()) if "mace-torch" in calls else 0.0


def _converted(which: str, plain):
    import importlib

    convert = importlib.import_module(f"mace.cli.convert_e3nn_{which}").run
    return convert(plain, device=DEVICE, return_model=True).to(DEVICE)


def _speedups(spent: dict, fast: list[str], plain: str) -> None:
    if fast:
        tell(speedup=min(spent[n] for n in fast) / spent["ours"])
    if plain in spent:
        tell(speedup_over_plain=spent[plain] / spent["ours"])


def deepmd(kind: str) -> None:
    """Compare with deepmd-kit's PyTorch: se_e2_a, 12,288 atoms of water."""
    frame = _frame(1 if SMALL else 4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.dp"
        peer = attempt("deepmd-kit", lambda: _deepmd_model(kind, path))
        ours = _read(path, kind)
    from scitoolkit.potentials.graph import configuration_graph

    ours = ours.to(DEVICE).eval()
    graph = _on_device(configuration_graph(frame, ours.type_map, ours.cutoff))
    tell(atoms=len(frame.species), edges=graph["edge_index"].shape[1])
    first = attempt("ours", lambda: (seconds(lambda: ours(graph)), ours(graph)))
    if first is None:
        return
    tell(first_call_seconds=first[0])
    calls = _ours(ours, graph)
    if peer is not None:
        lower = attempt("deepmd-kit call", lambda: _deepmd_call(peer, frame))
        if lower is not None:
            found = lower()
            forces = _folded(found, lower.mapping, len(frame.species))
            theirs = {"energy": found["energy"], "forces": forces}
            error = _error(first[1], theirs)
            tell(error=error)
            if not error <= LIMITS[kind]:
                tell(missing={"agreement": f"differs from deepmd-kit by {error:.1e}"})
                raise SystemExit(1)
            calls["deepmd-kit"] = lower
    spent = alternate(calls, 3 if SMALL else 15)
    tell(milliseconds={name: 1e3 * value for name, value in spent.items()})
    if "deepmd-kit" in spent:
        tell(speedup=spent["deepmd-kit"] / spent["ours"])


def _deepmd_model(kind: str, path: Path):
    from deepmd.dpmodel.utils.serialization import save_dp_model
    from deepmd.pt.model.model import get_model

    settings = {
        "type_map": ["O", "H"],
        "descriptor": {
            "type": "se_e2_a",
            "rcut": 6.0,
            "rcut_smth": 0.5,
            "sel": [46, 92],
            "neuron": [25, 50, 100],
            "axis_neuron": 16,
            "resnet_dt": False,
            "precision": kind,
            "seed": 1,
        },
        "fitting_net": {
            "neuron": [240, 240, 240],
            "resnet_dt": True,
            "precision": kind,
            "seed": 1,
        },
    }
    model = get_model(settings).to(DEVICE).eval()
    tree = {"model": model.serialize(), "model_def_script": settings, "backend": "PyTorch"}
    save_dp_model(str(path), tree)
    return model


def _read(path: Path, kind: str):
    from scitoolkit.potentials import read_deepmd
    from scitoolkit.potentials.deepmd.config import SeE2AConfig

    if path.exists():
        return read_deepmd(path)
    config = SeE2AConfig(
        cutoff=6.0,
        cutoff_smooth=0.5,
        sel=[46, 92],
        embedding=[25, 50, 100],
        axis_neurons=16,
        fitting=[240, 240, 240],
        precision=kind,
    )
    return config.build(["O", "H"])


def _deepmd_call(model, frame):
    from deepmd.pt.utils.nlist import extend_input_and_build_neighbor_list

    types = torch.tensor(np.array([["O", "H"].index(s) for s in frame.species]))[None].to(DEVICE)
    coord = torch.tensor(frame.positions, dtype=torch.float64)[None].to(DEVICE)
    box = torch.tensor(frame.cell, dtype=torch.float64).reshape(1, 9).to(DEVICE)
    extended, kinds, mapping, pairs = extend_input_and_build_neighbor_list(
        coord, types, 6.0, [46, 92], mixed_types=False, box=box
    )

    def call():
        return model.forward_lower(extended.detach(), kinds, pairs, mapping)

    call.mapping = mapping
    return call


def _folded(found: dict, mapping: torch.Tensor, atoms: int) -> torch.Tensor:
    """Sum the forces of periodic images to those of the atoms."""
    forces = found["extended_force"].detach()[0]
    return forces.new_zeros(atoms, 3).index_add(0, mapping[0], forces)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    {"mace": mace, "deepmd": deepmd}[sys.argv[1]](sys.argv[2])

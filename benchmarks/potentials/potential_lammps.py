"""Exported potentials in LAMMPS: equality with ASE on 1, 2, 4 ranks, and time per atom and step.

The model's time is that of its C library on the graph of the same atoms, without neighbour list;
LAMMPS' is the difference in CPU time of a longer and a shorter run. deepmd-kit's LAMMPS runs the
same se_e2_a weights, converted by `dp convert-backend`, in a separate environment; the two
alternate. Equality is checked first, and no time is printed without it. One thread, float64.
symmetrix' serial build evaluates the same random weights of mace-torch on the same graph as our
library, in float64; our float32 library is also compared with it, because symmetrix' float32 needs
Kokkos. Peers without an environment (`make peers`) are null.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _places import HELPERS, PEERS

sys.path.insert(0, str(HELPERS))
DEEPMD, SYMMETRIX = PEERS / "deepmd_lammps" / "bin", PEERS / "symmetrix"
LIMIT, SIDE, ROUNDS = 1e-11, (12, 8, 8), 3
# Largest difference of edge gradients from symmetrix', whose radial functions are cubic splines.
FORMS = {"float64": 1e-5, "float32": 1e-4}
STEPS = (5, 25)
RUN = """velocity all create 300 7 loop geom
fix dynamics all nve
timestep 0.0002
run {steps}
"""


def water_like(counts=SIDE):
    """Return atoms at the density of water, one O to two H, on a distorted grid."""
    import ase
    import numpy as np

    rng, step = np.random.default_rng(0), 2.15
    grid = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1).reshape(-1, 3)
    x = (grid + 0.5 + rng.uniform(-0.12, 0.12, grid.shape)) * step
    species = np.array(["O", "H", "H"])[rng.permutation(len(x)) % 3]
    return ase.Atoms(species, x, cell=np.array(counts) * step, pbc=True)


def models() -> dict:
    """Return configurations and models of the comparison, random weights."""
    import torch

    from scitoolkit.potentials import DeepPotentialConfig, MaceConfig, NequipConfig, SeE2AConfig

    attention = {"name": "se_atten", "sel": 138, "attention_layers": 1}
    configs = {
        "mace": MaceConfig(precision="float64"),
        "nequip": NequipConfig(precision="float64", layers=2),
        "se_e2_a": SeE2AConfig(sel=[46, 92], precision="float64"),
        "se_atten": DeepPotentialConfig(descriptors=[attention]),
    }
    found = {}
    for name, config in configs.items():
        model = config.build(["O", "H"]).eval()
        with torch.no_grad():
            if name in ("mace", "nequip"):
                model.average_neighbours.fill_(52.0)
            else:
                deviation = torch.tensor([0.1, 0.08, 0.08, 0.08], dtype=torch.float64)
                model.descriptors[0].deviation.copy_(deviation.expand(2, 4))
            if name == "se_e2_a":
                model.descriptors[0].mean[:, 0] = 0.05
        found[name] = (model, config)
    return found


def difference(runs, pair: str, model, ranks: int, atoms) -> float:
    """Return the largest relative difference from ASE in energy, forces and virial."""
    import numpy as np

    from scitoolkit.potentials import Calculator
    from scitoolkit.potentials.equivariant import mace

    mace.STREAMED_ATOMS = len(atoms) + 1  # the layers in Python, not the library that LAMMPS calls
    energy, forces, virial, *_ = runs.measure(atoms, pair, ranks)
    atoms.calc = Calculator(model, skin=0)
    wanted = -atoms.get_stress()[[0, 1, 2, 5, 4, 3]] * atoms.get_volume()
    pairs = (
        (energy, atoms.get_potential_energy()),
        (forces, atoms.get_forces()),
        (virial, wanted),
    )
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def edge_arrays(model, atoms) -> tuple:
    """Return the arguments of `PotentialLibrary.evaluate`."""
    import numpy as np

    from scitoolkit.io.atoms_formats import from_ase
    from scitoolkit.potentials.graph import configuration_graph, edge_vectors

    atoms.calc = None
    graph = configuration_graph(from_ase(atoms), model.type_map, model.cutoff)
    number = len(model.type_map)
    return (
        graph["segments"].numpy()[::number].copy(),
        graph["edge_index"][1].numpy().astype(np.int32),
        np.ascontiguousarray(edge_vectors(graph).numpy()),
        graph["types"].numpy().astype(np.int32),
    )


def library_microseconds(folder: Path, arrays: tuple) -> tuple[float, tuple]:
    """Return CPU microseconds per atom of the library on a given graph, and its results."""
    import time

    from scitoolkit.potentials.export.library import PotentialLibrary

    library, seconds, found = PotentialLibrary(folder), [], ()
    for _ in range(ROUNDS + 1):
        start = time.process_time()
        found = library.evaluate(*arrays)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds[1:]) / len(arrays[3]) * 1e6, found


def symmetrix_graph(file: Path, arrays: tuple) -> None:
    """Write the graph that `_symmetrix_peer.cpp` reads."""
    import numpy as np

    ptr, sender, vectors, species = arrays
    sizes = np.array([len(species), len(sender)], dtype=np.int64)
    parts = (
        sizes,
        species,
        np.diff(ptr).astype(np.int32),
        sender,
        species[sender],
        vectors,
        np.linalg.norm(vectors, axis=1),
    )
    file.write_bytes(b"".join(part.tobytes() for part in parts))


def symmetrix(folder: Path, atoms) -> dict:
    """Return CPU microseconds an atom of symmetrix and of ours on weights of mace-torch."""
    import numpy as np

    from scitoolkit.potentials import read_mace
    from scitoolkit.potentials.export.write import export_library

    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
    }
    convert = [
        PEERS / "mace" / "bin" / "python",
        Path(__file__).with_name("_symmetrix_model.py"),
        SYMMETRIX / "source",
        folder,
    ]
    subprocess.run(convert, env=environment, check=True, capture_output=True)
    models = {name: read_mace(folder / "mace.pt", precision=name) for name in FORMS}
    for name, model in models.items():
        export_library(model, model.config, folder / name)
    arrays = edge_arrays(models["float64"], atoms)
    symmetrix_graph(folder / "graph", arrays)
    command = [SYMMETRIX / "peer", folder / "symmetrix.json", folder / "graph", folder / "result"]
    times, size = {name: [] for name in ("symmetrix", *FORMS)}, len(atoms)
    for _ in range(ROUNDS):
        done = subprocess.run([*command, "3"], env=environment, check=True, capture_output=True)
        times["symmetrix"].append(min(map(float, done.stdout.split())) / size * 1e6)
        theirs = -np.fromfile(folder / "result")[size:].reshape(-1, 3)
        for name in FORMS:
            microseconds, (_, gradient) = library_microseconds(folder / name, arrays)
            error = np.abs(gradient - theirs).max() / np.abs(theirs).max()
            if not error <= FORMS[name]:
                raise RuntimeError(f"{name}: symmetrix and ours differ by {error:.1e}")
            times[name].append(microseconds)
    return {name: statistics.median(values) for name, values in times.items()}


def lammps_microseconds(command, environment, set_steps) -> float:
    """Return CPU microseconds per step of a LAMMPS input, by the difference of two lengths."""
    seconds = []
    for steps in STEPS:
        set_steps(steps)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout[-800:] + done.stderr[-400:])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(sum(after[:2]) - sum(before[:2]))
    return (seconds[1] - seconds[0]) / (STEPS[1] - STEPS[0]) * 1e6


def ours(runs, pair: str, atoms) -> float:
    """Return CPU microseconds an atom and step of our pair style on one rank."""
    holder: list = [None]

    def set_steps(steps: int) -> None:
        holder[:] = runs.command(atoms, pair, 1, RUN.format(steps=steps))[3:]

    set_steps(STEPS[0])
    return lammps_microseconds(holder, runs.environment, set_steps) / len(atoms)


def deepmd(model, folder: Path, atoms) -> float:
    """Return the same of deepmd-kit's pair style, on the same weights."""
    from lammps_runs import write_data

    from scitoolkit.potentials import write_deepmd

    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TF_INTRA_OP_PARALLELISM_THREADS": "1",
        "TF_INTER_OP_PARALLELISM_THREADS": "1",
        "LD_LIBRARY_PATH": str(DEEPMD.parent / "lib"),
        "PATH": f"{DEEPMD}{os.pathsep}{os.environ['PATH']}",
    }
    file = folder / "graph.pb"
    if not file.exists():
        write_deepmd(model, folder / "model.dp")
        subprocess.run(
            [DEEPMD / "dp", "convert-backend", folder / "model.dp", file],
            env=environment,
            check=True,
            capture_output=True,
        )
    write_data(folder / "data", atoms, ["O", "H"])
    head = (
        f"units metal\natom_style atomic\nread_data {folder / 'data'}\n"
        f"pair_style deepmd {file}\npair_coeff * * O H\nneighbor 1.0 bin\n"
    )

    def set_steps(steps: int) -> None:
        (folder / "in").write_text(head + RUN.format(steps=steps))

    command = [DEEPMD / "lmp", "-in", folder / "in", "-log", "none"]
    return lammps_microseconds(command, environment, set_steps) / len(atoms)


def run() -> dict:
    import torch
    from _measure import machine
    from lammps_runs import LammpsRuns, lammps_python

    from scitoolkit.potentials.export.pair_style import build_pair_style, find_lammps
    from scitoolkit.potentials.export.write import export_library

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        runs = LammpsRuns(build_pair_style(find_lammps(lammps_python()), folder), folder)
        found, pairs, figures = models(), {}, {}
        small, large, worst = water_like((6, 6, 6)), water_like(), 0.0
        for name, (model, config) in found.items():
            export_library(model, config, folder / name)
            pairs[name] = f"pair_style scitoolkit {folder / name}\npair_coeff * * O H"
            for ranks in (1, 2, 4):
                worst = max(worst, difference(runs, pairs[name], model, ranks, small))
        if not worst <= LIMIT:
            raise RuntimeError(f"LAMMPS and ASE differ by {worst:.1e}")
        peer, times = [], {(name, who): [] for name in found for who in ("lammps", "library")}
        arrays = {name: edge_arrays(model, large) for name, (model, _) in found.items()}
        for _ in range(ROUNDS):
            for name in found:
                times[name, "library"].append(library_microseconds(folder / name, arrays[name])[0])
                times[name, "lammps"].append(ours(runs, pairs[name], large))
            if (DEEPMD / "lmp").exists():
                (folder / "deepmd").mkdir(exist_ok=True)
                peer.append(deepmd(found["se_e2_a"][0], folder / "deepmd", large))
        for (name, who), values in times.items():
            figures[f"{name}_{who}_us"] = statistics.median(values)
        ratios = [figures[f"{name}_lammps_us"] / figures[f"{name}_library_us"] for name in found]
        deepmd_us = statistics.median(peer) if peer else None
        other: dict = {}
        if (SYMMETRIX / "peer").exists():
            (folder / "symmetrix").mkdir()
            other = symmetrix(folder / "symmetrix", large)
        speedups = {
            f"symmetrix_speedup_{name}": other["symmetrix"] / other[name] if other else None
            for name in FORMS
        }
        figures |= {f"symmetrix_case_{name}_us": value for name, value in other.items()}
        return {
            "equality_max": worst,
            "lammps_over_library": max(ratios),
            **speedups,
            "deepmd_lammps_speedup": deepmd_us / figures["se_e2_a_lammps_us"] if peer else None,
            **figures,
            "deepmd_lammps_us": deepmd_us,
            "atoms": len(large),
            **machine(),
        }

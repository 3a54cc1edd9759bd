"""The DeePMD model se_e2_a on water, compared with deepmd-kit's TensorFlow backend in one call.

deepmd-kit trains 500 steps, freezes, compresses and converts; its weights are read here. Gate:
energies, forces and virials agree to 1e-10 relative. Then both evaluate the same frames in turn
(neighbour lists included on both sides, one thread, medians of CPU seconds measured by each
process), and both train the same schedule as subprocesses; seconds per step are the difference of a
long and a short run.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _places import PEERS, ROOT

PEER = PEERS / "deepmd" / "bin"
DATA = ROOT / "datasets" / "water_deepmd"
STEPS, SHORT, ROUNDS = 500, 20, {192: 9, 1536: 5}
GATE = 1e-10

INPUT = {
    "model": {
        "type_map": ["O", "H"],
        "descriptor": {
            "type": "se_e2_a",
            "sel": [46, 92],
            "rcut_smth": 0.5,
            "rcut": 6.0,
            "neuron": [25, 50, 100],
            "resnet_dt": False,
            "axis_neuron": 16,
            "type_one_side": True,
            "precision": "float64",
            "seed": 1,
        },
        "fitting_net": {
            "neuron": [240, 240, 240],
            "resnet_dt": True,
            "precision": "float64",
            "seed": 1,
        },
    },
    "learning_rate": {"type": "exp", "decay_steps": 50, "start_lr": 1e-3, "stop_lr": 1e-4},
    "loss": {
        "type": "ener",
        "start_pref_e": 0.02,
        "limit_pref_e": 1,
        "start_pref_f": 1000,
        "limit_pref_f": 1,
        "start_pref_v": 0,
        "limit_pref_v": 0,
    },
    "training": {
        "training_data": {
            "systems": [str(DATA / f"data_{k}") for k in range(3)],
            "batch_size": 1,
        },
        "validation_data": {"systems": [str(DATA / "data_3")], "batch_size": 1, "numb_btch": 3},
        "numb_steps": STEPS,
        "seed": 10,
        "disp_file": "lcurve.out",
        "disp_freq": 100,
        "save_freq": STEPS,
    },
}
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "TF_INTRA_OP_PARALLELISM_THREADS": "1",
    "TF_INTER_OP_PARALLELISM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def run() -> dict:
    if not (PEER / "dp").exists():
        raise SystemExit("deepmd-kit is not installed: make peers")
    with tempfile.TemporaryDirectory() as folder:
        return measure(Path(folder))


def measure(folder: Path) -> dict:
    import torch
    from _measure import machine

    from scitoolkit import api
    from scitoolkit.potentials import read_deepmd

    torch.set_num_threads(1)
    peer_step = training_seconds(lambda steps: peer_training(folder, steps))
    our_runs: dict[int, Path] = {}
    our_step = training_seconds(lambda steps: our_training(folder, steps, our_runs))
    for command in (
        ["--tf", "freeze", "-o", "graph.pb"],
        ["--tf", "compress", "-i", "graph.pb", "-o", "compressed.pb", "-t", "input.json"],
        ["convert-backend", "graph.pb", "graph.dp"],
    ):
        call([PEER / "dp", *command], folder)
    plain = read_deepmd(folder / "graph.dp").eval()
    compressed = read_deepmd(folder / "graph.dp").eval().compress()
    frames = test_frames()
    with Peer(folder) as peer:
        agreement = gate(peer, plain, frames[0], folder)
        peer_rmse = peer.force_rmse(frames, folder)
        figures = {}
        for times in (1, 2):
            found = speeds(peer, {"plain": plain, "compressed": compressed}, frames[0], times)
            figures[192 * times**3] = found
    small, large = figures[192], figures[1536]
    growth, per_atom = large_system(plain, frames[0])
    ours = api.evaluate(our_runs[STEPS], DATA / "data_3").metrics
    return {
        "energy_forces_speedup": min(small["plain"], large["plain"]),
        "compressed_speedup": min(small["compressed"], large["compressed"]),
        "train_speedup": peer_step / our_step,
        "force_rmse_500": ours["force_rmse"] / 1e3,
        "us_per_atom_192": small["us"]["plain"],
        "us_per_atom_12000": per_atom,
        "memory_kib_per_atom_12000": growth,
        "peer_force_rmse_500": peer_rmse,
        "train_cpu_seconds_per_step": our_step,
        "peer_train_cpu_seconds_per_step": peer_step,
        "energy_forces_speedup_1536": large["plain"],
        "energy_forces_speedup_192": small["plain"],
        "compressed_speedup_1536": large["compressed"],
        "compressed_speedup_192": small["compressed"],
        "us_per_atom": {str(n): f["us"] for n, f in figures.items()},
        "agreement": agreement,
        "table_error": compressed.constants().table.error,
        "peer": "deepmd-kit 3.2.0, TensorFlow CPU",
        **machine(),
    }


def call(command: list, folder: Path) -> float:
    """Run a command; return its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [str(c) for c in command],
        cwd=folder,
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command[1:3]} failed:\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def training_seconds(train) -> float:
    short = train(SHORT)
    return (train(STEPS) - short) / (STEPS - SHORT)


def peer_training(folder: Path, steps: int) -> float:
    settings = {**INPUT, "training": {**INPUT["training"], "numb_steps": steps}}
    (folder / "input.json").write_text(json.dumps(settings))
    return call([PEER / "dp", "--tf", "train", "input.json", "--skip-neighbor-stat"], folder)


def our_training(folder: Path, steps: int, runs: dict[int, Path]) -> float:
    root = folder / f"runs{steps}"
    command = [
        sys.executable,
        "-m",
        "scitoolkit",
        "train",
        ROOT / "workflows" / "water_deepmd",
        f"training.steps={steps}",
        "training.schedule.hold_steps=50",
        f"run.root={root}",
        f"data.validation=[{DATA / 'data_3'}]",
        "split.validation=0.1",
        "data.test=[]",
        "training.progress=false",
        "training.log_every=100",
    ]
    seconds = call(command, folder)
    runs[steps] = next((root / "water_deepmd").iterdir())
    return seconds


def test_frames() -> list:
    from scitoolkit.io.atoms import open_atoms

    return list(open_atoms(DATA / "data_3"))


def repeated(frame, times: int):
    from scitoolkit.io.atoms import Configuration

    shifts = [
        np.array([i, j, k]) @ frame.cell
        for i in range(times)
        for j in range(times)
        for k in range(times)
    ]
    positions = np.concatenate([frame.positions + s for s in shifts])
    return Configuration(np.tile(frame.species, times**3), positions, frame.cell * times, frame.pbc)


def our_call(model, frame) -> tuple[float, dict]:
    from scitoolkit.potentials.graph import configuration_graph

    start = time.process_time()
    found = model(configuration_graph(frame, model.type_map, model.cutoff))
    return time.process_time() - start, found


class Peer:
    """deepmd-kit in its own process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [str(PEER / "python"), str(Path(__file__).with_name("_deepmd_peer.py"))],
            cwd=folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ONE_THREAD},
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()

    def call(self, model: str, frame, save: Path | None = None) -> float:
        path = self._folder / f"frame{len(frame.species)}.npz"
        if save is not None or not path.exists():
            kinds = (frame.species == "H").astype(int)
            np.savez(path, coord=frame.positions, box=frame.cell, type=kinds)
        request = {"model": model, "frame": str(path), "save": str(save) if save else None}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line[7:])["cpu"]
        raise SystemExit("deepmd-kit stopped")

    def force_rmse(self, frames: list, folder: Path) -> float:
        errors = []
        for frame in frames:
            self.call("graph.pb", frame, folder / "answer.npz")
            force = np.load(folder / "answer.npz")["force"].reshape(-1, 3)
            errors.append(((force - frame.forces) ** 2).mean())
        return float(np.sqrt(np.mean(errors)))


def gate(peer: Peer, model, frame, folder: Path) -> float:
    """Return the largest relative deviation; refuse to go on above the gate."""
    peer.call("graph.pb", frame, folder / "answer.npz")
    theirs, ours = np.load(folder / "answer.npz"), our_call(model, frame)[1]
    worst = 0.0
    for name, key in (("energy", "energy"), ("forces", "force"), ("virial", "virial")):
        a, b = ours[name].numpy().ravel(), theirs[key].ravel()
        worst = max(worst, float(np.abs(a - b).max() / np.abs(b).max()))
    if worst > GATE:
        raise SystemExit(f"red gate: deviation {worst} from deepmd-kit on its own weights")
    return worst


def speeds(peer: Peer, models: dict, frame, times: int) -> dict:
    """Return the ratios of medians of alternating calls, and microseconds an atom."""
    system = repeated(frame, times)
    atoms = len(system.species)
    files = {"plain": "graph.pb", "compressed": "compressed.pb"}
    seconds: dict[str, list[float]] = {k: [] for kind in models for k in (kind, f"peer_{kind}")}
    for kind, model in models.items():
        peer.call(files[kind], system)
        our_call(model, system)
    for _ in range(ROUNDS[atoms]):
        for kind, model in models.items():
            seconds[f"peer_{kind}"].append(peer.call(files[kind], system))
            seconds[kind].append(our_call(model, system)[0])
    median = {k: statistics.median(v) for k, v in seconds.items()}
    ratios = {kind: median[f"peer_{kind}"] / median[kind] for kind in models}
    return {**ratios, "us": {k: 1e6 * v / atoms for k, v in median.items()}}


def large_system(model, frame) -> tuple[float, float]:
    """Return KiB of memory an atom beyond the start, and microseconds an atom, of 12,288 atoms."""
    system = repeated(frame, 4)
    atoms = len(system.species)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = [our_call(model, system)[0] for _ in range(2)]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) / atoms, 1e6 * min(seconds) / atoms

"""MACE trained on acetylacetone at 300 K: ours and mace-torch, equal parameters and CPU time.

Ours trains `STEPS` steps by the command line; all CPU seconds of that process (start, neighbour
lists, validation) are the budget of mace-torch's training steps alone, on the same 475 frames with
the same model, loss weights, batch, averaging and learning rate; ours with Muon, mace-torch with
its Adam. Both are tested on the 650 frames of test_MD_300K.xyz; energies in meV per molecule. One
thread.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from _places import PEERS, ROOT

PEER = PEERS / "mace" / "bin" / "python"
DATA = ROOT / "datasets" / "acac"
STEPS, CHANNELS, DEGREE, RADIAL = 20000, 48, 3, [32, 32]
RECIPE = {
    "lr": 1e-2,
    "batch_size": 5,
    "start_pref_e": 10,
    "limit_pref_e": 500,
    "pref_f": 100,
    "warmup_steps": 100,
    "clip_norm": 10,
    "ema_decay": 0.995,
    "seed": 0,
    "atoms": 15,
}
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}


def run() -> dict:
    if not PEER.exists():
        raise SystemExit("the peer mace-torch is not installed. Fix: make peers")
    with tempfile.TemporaryDirectory() as folder:
        return measure(Path(folder))


def measure(folder: Path) -> dict:
    from _measure import machine

    from scitoolkit import api
    from scitoolkit.potentials import load_model

    trained, seconds = ours(folder)
    found = api.evaluate(trained, DATA / "test_MD_300K.xyz").metrics
    theirs = peer(folder, seconds)
    parameters = sum(p.numel() for p in load_model(trained)[0].parameters())
    if parameters != theirs["parameters"]:
        raise SystemExit(f"{parameters} parameters, mace-torch has {theirs['parameters']}")
    return {
        "energy_mev": found["energy_rmse"],
        "force_mev": found["force_rmse"],
        **{f"peer_{name}": value for name, value in theirs.items()},
        "parameters": parameters,
        "steps": STEPS,
        "epochs": STEPS * RECIPE["batch_size"] / 475,
        "cpu_seconds": seconds,
        "peer": "mace-torch 0.3.16, float32",
        **machine(),
    }


def ours(folder: Path) -> tuple[Path, float]:
    """Train; return the run directory and the CPU seconds of the whole process."""
    recipe = RECIPE
    command = [
        sys.executable,
        "-m",
        "scitoolkit",
        "train",
        ROOT / "workflows" / "acac_mace" / "full.yaml",
        f"training.steps={STEPS}",
        f"model.channels={CHANNELS}",
        f"model.lmax={DEGREE}",
        f"model.radial_widths={RADIAL}",
        f"loss.start_pref_e={recipe['start_pref_e']}",
        f"loss.limit_pref_e={recipe['limit_pref_e']}",
        f"loss.start_pref_f={recipe['pref_f']}",
        f"loss.limit_pref_f={recipe['pref_f']}",
        f"training.batch_size={recipe['batch_size']}",
        f"training.optimizer={{name: muon, lr: {recipe['lr']}}}",
        f"training.clip_norm={recipe['clip_norm']}",
        f"training.schedule.warmup_steps={recipe['warmup_steps']}",
        f"training.ema_decay={recipe['ema_decay']}",
        f"training.seed={recipe['seed']}",
        f"run.root={folder}",
        "data.test=[]",
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [str(part) for part in command], env=ONE_THREAD, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"the training failed:\n{done.stderr[-2000:]}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return next((folder / "acac_mace").iterdir()), seconds


def peer(folder: Path, budget: float) -> dict:
    """Train mace-torch for `budget` CPU seconds on the same training frames as ours."""
    import numpy as np
    from ase.io import read, write

    frames = read(DATA / "train_300K.xyz", ":")
    held = max(1, round(len(frames) * 0.05))
    kept = np.sort(np.random.default_rng(0).permutation(len(frames))[held:])
    write(folder / "train.xyz", [frames[i] for i in kept])
    request = {
        "train": str(folder / "train.xyz"),
        "test": str(DATA / "test_MD_300K.xyz"),
        "budget": budget,
        "recipe": RECIPE,
        "model": {
            "hidden": f"{CHANNELS}x0e+{CHANNELS}x1o",
            "degree": DEGREE,
            "radial": RADIAL,
        },
    }
    done = subprocess.run(
        [str(PEER), str(Path(__file__).with_name("_mace_peer.py"))],
        input=json.dumps(request),
        env=ONE_THREAD,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])

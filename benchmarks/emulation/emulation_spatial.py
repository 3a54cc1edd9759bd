"""Fields divided among processes: equality with one process, bytes, memory, and a longer box.

Equality and bytes are those of four simulated processes, which run one after another and exchange
all messages; `equality_max` is the largest difference from one process in loss, gradients and ten
steps of a rollout, each over the largest value of its kind, in float64. In float32
(`equality_float32`) ten steps of these random networks amplify rounding errors, those of positions
in transport most of all. The memory of a process is its peak resident memory in one step on
512 x 512 x 512 cells with four fields on four gloo processes (SPATIAL_CELLS=N for another cube).

`size_transfer_ratio` is the one-step VRMSE (mean of b, u, w) in boxes of length 8 over that in
boxes of length 4, on unseen flows at Rayleigh number 1e6 (below 1e6 flows of length 4 become
steady, and those of length 8 later), of an emulator trained on boxes of length 4. The error differs
more between flows of one length than between the lengths, so that it is a mean over TESTS flows of
each. `length_8_ratio_trained_there` is the same ratio of an emulator trained on as many cells of
length 8: the part of the flows. `transfer_over_trained_there` compares the two emulators on the
flows of length 8: the part of the transfer.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from _measure import machine

from scitoolkit.core.config import load_config
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.emulator import Emulator, build
from scitoolkit.emulation.evaluation import OWN, PERSISTENCE, Evaluation
from scitoolkit.emulation.job import EmulationJob
from scitoolkit.emulation.spatial.slab_training import Slab
from scitoolkit.emulation.spatial.volume import forward_bytes
from scitoolkit.emulation.task import EmulationTask
from scitoolkit.emulation.transfer import on_grid
from scitoolkit.emulation.variables import Layout, Variable
from scitoolkit.generators.rayleigh_benard import RayleighBenard
from scitoolkit.io.fields import write_fields
from scitoolkit.testing.ranks import run_ranks
from scitoolkit.training.traffic import Traffic

RANKS, SIZES = 4, {"x": 128, "z": 32}
CELLS = int(os.environ.get("SPATIAL_CELLS", "512"))
SEEDS, TESTS, FRAMES, STEPS = 4, 8, 60, int(os.environ.get("SPATIAL_STEPS", "600"))
NETWORKS = {
    "unet": {"name": "unet", "widths": [16, 24], "patch": 2},
    "convnext_unet": {"name": "convnext_unet", "widths": [16, 24]},
    "resnet": {"name": "resnet", "width": 16, "blocks": 2},
    "fno": {"name": "fno", "width": 16, "modes": [8]},
    "factorised_fno": {"name": "factorised_fno", "width": 16, "modes": [8]},
}


def run() -> dict:
    """Return the figures."""
    torch.set_num_threads(1)
    single = {name: equality(model, torch.float32) for name, model in NETWORKS.items()}
    double = {name: equality(model, torch.float64) for name, model in NETWORKS.items()}
    errors = {n: bytes_error(NETWORKS[n]) for n in ("unet", "convnext_unet", "resnet")}
    return {
        "equality_max": max(double.values()),
        "equality_float32": single,
        "bytes_formula_error": max(errors.values()),
        **transfer(),
        **inference(),
        "cells": CELLS,
        "ranks": RANKS,
        "machine": machine(),
    }


def job(model: dict, dims: tuple[str, ...] = ("x", "z"), **sections) -> EmulationConfig:
    names = ["a", "b", "u", "w"]
    return EmulationConfig.model_validate(
        {
            "data": {"path": "none.nc", "inputs": names, "outputs": names},
            "model": model,
            "boundary": dict.fromkeys(dims[:1], "circular"),
            "rollout": {"steps": 2, "begin": 0},
            "training": {"strategy": "spatial"},
            **sections,
        }
    )


def layout(sizes: dict[str, int]) -> Layout:
    fields = tuple(
        Variable(n, tuple(sizes), tuple(sizes.values()), "", True) for n in ("a", "b", "u", "w")
    )
    return Layout(fields, fields, sizes, {d: list(range(n)) for d, n in sizes.items()}, "t")


def emulator(config: EmulationConfig, dtype: torch.dtype) -> Emulator:
    """Return an emulator whose step is about a tenth of its state."""
    torch.manual_seed(0)
    made = build(config, layout(SIZES)).to(dtype)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    made.advance.out_scale.fill_(0.1)
    return made


def equality(model: dict, dtype: torch.dtype) -> float:
    """Return the largest relative difference of four processes from one."""
    config = job(model, transport={"x": 4} if model["name"] == "unet" else None)
    generator = torch.Generator().manual_seed(1)
    batch = {n: torch.randn(2, 3, *SIZES.values(), generator=generator).to(dtype) for n in "abuw"}

    def outcome(one: Emulator, part: dict) -> tuple:
        loss, _ = EmulationTask(one, config.rollout).loss(part)
        loss.backward()
        state, steps = [part[n][:, 0] for n in "abuw"], []
        with torch.no_grad():
            for _ in range(10):
                state = list(one(*state))
                steps.append(torch.stack(state))
        return loss.detach(), [p.grad for p in one.parameters()], torch.stack(steps)

    def work(ranks) -> tuple:
        slab = Slab(config, layout(SIZES), ranks)
        part = {n: slab.on_grid(v) for n, v in batch.items()}
        return outcome(slab.emulator(emulator(config, dtype)), part)

    loss, gradients, steps = outcome(emulator(config, dtype), batch)
    found = run_ranks(RANKS, work, Traffic)
    scale = max(float(g.abs().max()) for g in gradients)
    differences = [
        float(abs(sum(f[0] for f in found) / RANKS - loss) / loss),
        float((torch.cat([f[2] for f in found], 3) - steps).abs().max() / steps.abs().max()),
        *(
            float((sum(each) / RANKS - g).abs().max()) / scale
            for g, *each in zip(gradients, *(f[1] for f in found), strict=True)
        ),
    ]
    return max(differences)


def bytes_error(model: dict) -> float:
    """Return the relative difference of the bytes received from the formula's."""
    config = job(model)

    def work(ranks) -> int:
        slab = Slab(config, layout(SIZES), ranks)
        part = slab.emulator(emulator(config, torch.float32))
        with torch.no_grad():
            part(*(torch.zeros(1, SIZES["x"] // RANKS, SIZES["z"]) for _ in "abuw"))
        return ranks.traffic.bytes

    predicted = forward_bytes(config.model, 4, [SIZES["z"]])
    return max(abs(n - predicted) / predicted for n in run_ranks(RANKS, work, Traffic))


def inference() -> dict:
    """Return the memory of each process in one step on a cube, GiB."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(RANKS),
        "OMP_NUM_THREADS": "1",
    }
    script = Path(__file__).with_name("_spatial_rank.py")
    begin = time.time()
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(CELLS)],
            stdout=subprocess.PIPE,
            env={**environment, "RANK": str(r)},
            text=True,
        )
        for r in range(RANKS)
    ]
    said = [process.communicate()[0] for process in ranks]
    if any(process.returncode for process in ranks):
        raise RuntimeError(f"a process failed: {[p.returncode for p in ranks]}")
    memory = [float(text.split()[-1]) for text in said]
    name = "inference_512_gib" if CELLS == 512 else f"inference_{CELLS}_gib"
    return {name: max(memory), "inference_wall_seconds": time.time() - begin}


def transfer() -> dict:
    """Return the errors in boxes of length 4 and 8, of emulators trained on either, and ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        learned = {4: range(SEEDS), 8: range(100, 100 + SEEDS // 2)}
        unseen = {4: range(SEEDS, SEEDS + TESTS), 8: range(901, 901 + TESTS)}
        for length in (4, 8):
            for seed in (*learned[length], *unseen[length]):
                # At Ra 1e6 the transient lasts about 30.
                flow = RayleighBenard(length=length, cells=32 * length, frames=FRAMES, spinup=35.0)
                kind = "learned" if seed in learned[length] else "unseen"
                write_fields(flow.generate(seed).frames, folder / f"{kind}{length}_{seed}.nc")
        errors, still, seconds = {}, {}, {}
        for length in (4, 8):
            begin = time.process_time()
            trained, config = trained_on(folder, length)
            seconds[length] = time.process_time() - begin
            for other in (4, 8):
                pairs = [vrmse(trained, config, p) for p in folder.glob(f"unseen{other}_*.nc")]
                errors[length, other], still[other] = np.mean(pairs, 0).tolist()
        # At a rate of 0.005 some trainings end at no change, whose errors compare nothing.
        if failed := [pair for pair in errors if errors[pair] > 0.9 * still[pair[1]]]:
            raise RuntimeError(f"no better than persistence (trained on, applied to): {failed}")
        return {
            "size_transfer_ratio": errors[4, 8] / errors[4, 4],
            "length_8_ratio_trained_there": errors[8, 8] / errors[8, 4],
            "transfer_over_trained_there": errors[4, 8] / errors[8, 8],
            "vrmse_length_4": errors[4, 4],
            "vrmse_length_8": errors[4, 8],
            "vrmse_length_8_trained_there": errors[8, 8],
            "persistence_length_4": still[4],
            "persistence_length_8": still[8],
            "train_cpu_seconds": seconds[4],
        }


def trained_on(folder: Path, length: int) -> tuple[Emulator, EmulationConfig]:
    """Return an emulator trained on the boxes of a length, and its job."""
    config = load_config(
        EmulationConfig,
        None,
        [
            "domain=emulation",
            f"data.path={folder}/learned{length}_*.nc",
            "data.inputs=[b, u, w]",
            "data.outputs=[b, u, w]",
            f"split={{train: {SEEDS * 4 // length}, validation: 0, test: 0}}",
            "boundary={x: circular}",
            "coordinates=[z]",
            "transport={x: 16, z: 12}",
            "symmetries={shift: [x], mirror: {x: [u], z: [b, w]}}",
            "model={name: unet, widths: [32, 48, 64], patch: 2}",
            "rollout={long: 0}",
            # As many cells in a batch of either length.
            f"training={{steps: {STEPS}, batch_size: {32 // length}, "
            "optimizer: {name: muon, lr: 0.002}, schedule: {name: cosine}, progress: false}",
            f"run.root={folder}/runs",
        ],
    )
    run = RunDirectory.create(config.run.root, f"length{length}", config)
    EmulationJob().train(config, run)
    return surrogate.load(run.path / "model", config), config


def vrmse(trained: Emulator, config: EmulationConfig, path: Path) -> tuple[float, float]:
    """Return the mean one-step VRMSE over the fields of a file, and that of persistence."""
    data = open_data(config.data, path, like=trained.layout)
    moved = on_grid(trained, config, data.layout, data.where)
    rollout = config.rollout.model_copy(update={"evaluate": 1})
    scores = Evaluation(moved, data, data.blocks, config.model_copy(update={"rollout": rollout}))
    own, still = (
        float(np.mean([rmse / scores.deviation[n] for n, rmse in scores.one_step[kind].items()]))
        for kind in (OWN, PERSISTENCE)
    )
    return own, still

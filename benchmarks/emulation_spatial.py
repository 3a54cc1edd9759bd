"""Fields divided among processes: equality with one process, bytes, memory, and a longer box.

Equality and bytes are those of four simulated processes, which run one after another and exchange
all messages; `equality_max` is the largest difference from one process in loss, gradients and ten
steps of a rollout, each over the largest value of its kind, in float64. In float32
(`equality_float32`) ten steps of these random networks amplify rounding errors, those of positions
in transport most of all. The memory of a process is its peak resident memory in one step on
512 x 512 x 512 cells with four fields on four gloo processes (SPATIAL_CELLS=N for another cube).

`size_transfer_ratio` is the one-step VRMSE (mean of b, u, w) in a box of length 8 over that in a
box of length 4, on unseen flows at Rayleigh number 1e6 (below 1e6 flows of length 4 become steady,
and those of length 8 later), of an emulator trained on boxes of length 4.
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
from scitoolkit.emulation.evaluation import OWN, Evaluation
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
SEEDS, TESTS, FRAMES, STEPS = 4, 2, 60, int(os.environ.get("SPATIAL_STEPS", "600"))
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
    """Return the ratio of errors in boxes of length 8 and 4, with these errors."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flow = {"frames": FRAMES, "spinup": 35.0}
        for seed in range(SEEDS + TESTS):
            made = RayleighBenard(length=4.0, cells=128, **flow).generate(seed)
            write_fields(made.frames, folder / f"seed{seed}.nc")
        made = RayleighBenard(length=8.0, cells=256, **flow).generate(901)
        write_fields(made.frames, folder / "long.nc")
        config = load_config(
            EmulationConfig,
            None,
            [
                "domain=emulation",
                f"data.path={folder}/seed*.nc",
                "data.inputs=[b, u, w]",
                "data.outputs=[b, u, w]",
                f"split.train={SEEDS}",
                "split.validation=0",
                f"split.test={TESTS}",
                "boundary={x: circular}",
                "coordinates=[z]",
                "transport={x: 16, z: 12}",
                "symmetries={shift: [x], mirror: {x: [u], z: [b, w]}}",
                "model={name: unet, widths: [32, 48, 64], patch: 2}",
                "rollout={long: 0}",
                f"training={{steps: {STEPS}, batch_size: 8, optimizer: {{name: muon, lr: 0.005}}, "
                "schedule: {name: cosine}, progress: false}",
                f"run.root={folder}/runs",
            ],
        )
        run = RunDirectory.create(config.run.root, "spatial", config)
        begin = time.process_time()
        EmulationJob().train(config, run)
        seconds = time.process_time() - begin
        trained = surrogate.load(run.path / "model", config)
        unseen = [folder / f"seed{seed}.nc" for seed in range(SEEDS, SEEDS + TESTS)]
        short = float(np.mean([error(trained, config, path) for path in unseen]))
        long = error(trained, config, folder / "long.nc")
        return {
            "size_transfer_ratio": long / short,
            "vrmse_length_4": short,
            "vrmse_length_8": long,
            "train_cpu_seconds": seconds,
        }


def error(trained: Emulator, config: EmulationConfig, path: Path) -> float:
    """Return the mean one-step VRMSE over the fields of a file."""
    data = open_data(config.data, path, like=trained.layout)
    moved = on_grid(trained, config, data.layout, data.where)
    config = config.model_copy(
        update={"rollout": config.rollout.model_copy(update={"evaluate": 1})}
    )
    found = Evaluation(moved, data, data.blocks, config)
    own = found.one_step[OWN]
    return float(np.mean([own[n] / found.deviation[n] for n in own]))

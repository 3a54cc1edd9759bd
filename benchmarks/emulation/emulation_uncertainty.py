"""Intervals of rollouts of the Kuramoto-Sivashinsky equation on unseen trajectories.

Four emulators are trained in parallel on 32 trajectories (period 22, 64 points, a step of 1),
calibrated on 64 others and scored on 64 more, 16 leads each. The baselines are the deterministic
forecast (its CRPS is the mean absolute error) and the uncalibrated spread of the members as a
normal distribution.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import NormalDist

import numpy as np
from _measure import machine

from scitoolkit.core.config import load_config
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.intervals import Intervals, Pairs, roll_on_data, score
from scitoolkit.emulation.job import EmulationJob
from scitoolkit.generators.kuramoto_sivashinsky import KuramotoSivashinsky
from scitoolkit.io.fields import write_fields

TRAIN, CALIBRATION, TEST, FRAMES, LEADS, MEMBERS = 32, 64, 64, 48, 16, 4


def run() -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generator = KuramotoSivashinsky(frames=FRAMES)
        for seed in range(TRAIN + CALIBRATION + TEST):
            write_fields(generator.generate(seed).frames, folder / f"seed{seed:03d}.nc")
        config = load_config(EmulationConfig, None, settings(folder))
        begin = time.process_time()
        directory = RunDirectory.create(config.run.root, "uncertainty", config)
        EmulationJob().train(config, directory)
        seconds = time.process_time() - begin
        return {
            **judged(config, directory),
            "train_cpu_seconds": seconds,
            "members": MEMBERS,
            "trajectories": [TRAIN, CALIBRATION, TEST],
            "machine": machine(),
        }


def settings(folder: Path) -> list[str]:
    return [
        "domain=emulation",
        f"data.path={folder}/seed*.nc",
        "data.inputs=[u]",
        "data.outputs=[u]",
        f"split.train={TRAIN}",
        f"split.validation={CALIBRATION}",
        f"split.test={TEST}",
        "boundary={x: circular}",
        "repeats=4",
        "model={name: unet, widths: [32, 64], blocks: 1}",
        "guards=[{name: spectral_filter}, {name: fixed_mean, values: {u: 0.0}}]",
        f"uncertainty={{members: {MEMBERS}, steps: {LEADS}}}",
        "rollout={steps: 3, begin: 0.5}",
        "training={steps: 1200, batch_size: 32, optimizer: {name: muon, lr: 0.004}, "
        "schedule: {name: cosine}, progress: false}",
        f"run.root={folder}/runs",
    ]


def judged(config: EmulationConfig, directory: RunDirectory) -> dict:
    model = directory.path / "model"
    emulator, intervals = surrogate.load(model, config), Intervals.load(model)
    data = open_data(config.data, like=emulator.layout)
    pairs = roll_on_data(emulator, data, data.blocks[-TEST:], config)
    found = score(intervals, pairs)["u"]
    ratios = np.array(found.crps) / found.mae
    return {
        "coverage90_min": min(found.coverage),
        "coverage90_max": max(found.coverage),
        "crps_over_mae_max": float(ratios.max()),
        "coverage": found.coverage,
        "spread_over_error": found.spread_over_error,
        "mae": found.mae,
        "coverage_of_the_spread_alone": [raw_coverage(p) for p in pairs["u"]],
    }


def raw_coverage(pairs: Pairs) -> float:
    """Return the coverage of the members' mean and spread taken as a normal distribution."""
    half = NormalDist().inv_cdf(0.95) * pairs.spread
    return float((np.abs(pairs.truth - pairs.mean) <= half).mean())

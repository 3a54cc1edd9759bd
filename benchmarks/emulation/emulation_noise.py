"""A probabilistic emulator of the Kuramoto-Sivashinsky equation on unseen trajectories.

One emulator with noise as an input is trained by the fair CRPS of two draws on the trajectories of
`emulation_uncertainty`, calibrated and scored on others, 16 leads each. The members as they are and
the calibrated intervals are scored; a deterministic forecast has its mean absolute error as CRPS.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from _measure import machine
from emulation_uncertainty import CALIBRATION, FRAMES, LEADS, TEST, TRAIN, settings

from scitoolkit.core.config import load_config
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.ensemble import with_draws
from scitoolkit.emulation.intervals import Intervals, roll_on_data, score
from scitoolkit.emulation.job import EmulationJob
from scitoolkit.generators.kuramoto_sivashinsky import KuramotoSivashinsky
from scitoolkit.io.fields import write_fields

MEMBERS, VALUES, STARTS = 19, 16, 2


def run() -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generator = KuramotoSivashinsky(frames=FRAMES)
        for seed in range(TRAIN + CALIBRATION + TEST):
            write_fields(generator.generate(seed).frames, folder / f"seed{seed:03d}.nc")
        members = f"members: {MEMBERS}, noise: {VALUES}, steps: {LEADS}, starts: {STARTS}"
        others = [line for line in settings(folder) if not line.startswith("uncertainty=")]
        config = load_config(EmulationConfig, None, [*others, f"uncertainty={{{members}}}"])
        begin = time.process_time()
        directory = RunDirectory.create(config.run.root, "noise", config)
        EmulationJob().train(config, directory)
        seconds = time.process_time() - begin
        return {
            **_judged(config, directory),
            "cpu_seconds": seconds,
            "members": MEMBERS,
            "trajectories": [TRAIN, CALIBRATION, TEST],
            "machine": machine(),
        }


def _judged(config: EmulationConfig, directory: RunDirectory) -> dict:
    model = directory.path / "model"
    emulator = with_draws(surrogate.load(model, config), config)
    data = open_data(config.data, like=emulator.layout)
    pairs = roll_on_data(emulator, data, data.blocks[-TEST:], config)
    scores = score(Intervals.load(model), pairs)["u"]
    ratios = [crps / mae for crps, mae in zip(scores.members_crps, scores.mae, strict=True)]
    return {
        "coverage90_min": min(scores.coverage),
        "coverage90_max": max(scores.coverage),
        "members_coverage90_min": min(scores.members_coverage),
        "members_coverage90_max": max(scores.members_coverage),
        "members_crps_over_mae_max": max(ratios),
        "spread_over_error_min": min(scores.spread_over_error),
        "spread_over_error_max": max(scores.spread_over_error),
        "coverage": scores.coverage,
        "members_coverage": scores.members_coverage,
        "spread_over_error": scores.spread_over_error,
        "mae": scores.mae,
        "members_crps": scores.members_crps,
    }

"""The shipped emulator of steady convection: 1,000 steps compared with the climate of the solver.

The truth consists of simulations not used for training (other seeds of the shipped solver, time 45
to 270), on the emulator's grid. A rollout of 1,000 steps starts from the first frame of each; its
climate is that of steps 101 to 900, and that of the truth covers the same times. Errors over
persistence are root mean squares over starts and cells, weighted by volume. Nusselt numbers are
1 + <w b> / P over the volume. `cost_over_solver` is the emulator's CPU seconds per step over the
solver's for the same time, both measured here on one thread.

EMULATION_SURROGATE=FOLDER measures another emulator of the same variables; EMULATION_STARTS=N sets
the number of simulations.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from _measure import machine
from _places import ROOT

from scitoolkit.core.errors import NumericalError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.climate import Climate, spectrum_factor
from scitoolkit.emulation.config import EmulationConfig, QuantityConfig
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.rollout import jitter_of, rollout
from scitoolkit.generators.convection_solver import Convection

SURROGATE = ROOT / "surrogates" / "rb2d_steady"
SEED, BEGIN, END, STEP = 901, 45.0, 270.0, 0.25
STEPS, SETTLED, SHORT, SHORT_STARTS = 1000, 100, 15, 6
STARTS = int(os.environ.get("EMULATION_STARTS", "4"))
NAMES = ("p", "b", "u", "w")
QUANTITIES = {
    "energy": QuantityConfig(terms=[["u", "u"], ["w", "w"]], scale=0.5),
    "nusselt": QuantityConfig(terms=[["w", "b"]], scale=1e3, offset=1.0),
}


def run() -> dict:
    """Return the figures."""
    torch.set_num_threads(1)
    folder = Path(os.environ.get("EMULATION_SURROGATE", SURROGATE))
    model = ModelFolder(folder)
    config = model.config(EmulationConfig)
    emulator = surrogate.load(model.path, config)
    weights = emulator.layout.weights()
    reference = Climate(NAMES, QUANTITIES, weights, 0)
    finite, seconds, solver, climates, runs = [], [], [], [], []
    for seed in range(SEED, SEED + STARTS):
        frames, cost = truth(emulator, seed)
        for step, frame in enumerate(frames):
            reference.add(frame, settled=step > SETTLED)
        climate = Climate(NAMES, QUANTITIES, weights, 0)
        steps, own = _long(emulator, config, frames[0], climate, len(frames) - 1)
        finite.append(steps)
        seconds.append(own)
        solver.append(cost)
        climates.append(climate)
        runs.append(frames)
        print(f"seed {seed}: {steps} steps, {own:.3f} s each", file=sys.stderr)
    paid, costs = float(np.median(seconds)), float(np.median(solver))
    return {
        "finite_steps_min": min(finite),
        "steps": STEPS,
        "starts": STARTS,
        **_climate_errors(climates, reference),
        **_short(emulator, config, runs, weights),
        "cost_over_solver": paid / costs,
        "seconds_per_step": paid,
        "solver_seconds": costs,
        "parameters": sum(p.numel() for p in emulator.parameters()),
        **machine(),
    }


def truth(emulator: Emulator, seed: int) -> tuple[list[dict[str, np.ndarray]], float]:
    """Return frames on the emulator's grid and the solver's CPU seconds of one."""
    sizes = list(emulator.layout.grid.values())
    flow = Convection()
    flow.start_at_rest(seed)
    flow.advance(BEGIN)
    frames, seconds = [], 0.0
    for _ in range(round((END - BEGIN) / STEP) + 1):
        frames.append({n: v.astype(np.float32) for n, v in flow.frame(*sizes).items()})
        begin = time.process_time()
        flow.advance(STEP)
        seconds += time.process_time() - begin
    return frames, seconds / len(frames)


def _long(
    emulator: Emulator, config: EmulationConfig, first: dict, climate: Climate, last: int
) -> tuple[int, float]:
    """Return how many steps of a rollout are finite and the CPU seconds of one.

    Steps after `last`, where the truth ends, are not in the climate.
    """
    done, begin = 0, time.process_time()
    try:
        jitter = jitter_of(config, emulator.layout)
        for step, frame in enumerate(rollout(emulator, first, STEPS, jitter=jitter), start=1):
            if step <= last:
                climate.add(frame, settled=step > SETTLED)
            done = step
    except NumericalError as error:
        print(error, file=sys.stderr)
    return done, (time.process_time() - begin) / max(done, 1)


def _climate_errors(climates: list[Climate], reference: Climate) -> dict:
    """Return the errors of the mean climate of all rollouts, and those of spectra, worst of all."""
    out: dict = {}
    for name in QUANTITIES:
        mean = float(np.mean([c.mean(name) for c in climates]))
        out[name], out[f"{name}_truth"] = mean, reference.mean(name)
        out[f"{name}_error"] = abs(mean / reference.mean(name) - 1)
    for share, label in ((0.99, "99"), (0.999, "999")):
        each = {}
        for name in ("b", "u", "w"):
            power = np.mean([c.power(name) for c in climates], axis=0)
            each[name] = spectrum_factor(power, reference.power(name), share)
        out |= {f"spectrum_factor_{label}_{n}": v for n, v in each.items()}
        out[f"spectrum_factor_{label}"] = max(each.values())
    return out


def _short(
    emulator: Emulator, config: EmulationConfig, runs: list[list], weights: np.ndarray
) -> dict:
    """Return the errors over persistence after 1, 8 and 15 steps."""
    own = {n: np.zeros(SHORT) for n in NAMES}
    rival = {n: np.zeros(SHORT) for n in NAMES}
    for frames in runs:
        for start in np.linspace(0, len(frames) - 1 - SHORT, SHORT_STARTS).astype(int):
            jitter = jitter_of(config, emulator.layout)
            forecast = rollout(emulator, frames[start], SHORT, jitter=jitter)
            for step, frame in enumerate(forecast):
                true = frames[start + 1 + step]
                for n in NAMES:
                    own[n][step] += ((frame[n] - true[n]) ** 2 * weights).mean()
                    rival[n][step] += ((frames[start][n] - true[n]) ** 2 * weights).mean()
    ratio = {n: np.sqrt(own[n] / rival[n]) for n in NAMES}
    return {
        "one_step_over_persistence_max": float(max(r[0] for r in ratio.values())),
        "rollout8_over_persistence_max": float(max(r[7] for r in ratio.values())),
        "rollout15_over_persistence_buw_max": float(max(ratio[n][14] for n in "buw")),
        "rollout15_over_persistence_p": float(ratio["p"][14]),
    }

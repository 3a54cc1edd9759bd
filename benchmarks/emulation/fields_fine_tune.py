"""Emulators fine-tuned on 8 simulations over ones trained on them from scratch, at equal CPU time.

The trained emulator learned the Kuramoto-Sivashinsky equation (64 points, length 32, 24
simulations) at one viscosity. It is fine-tuned on 8 simulations with half the viscosity, and on 8
simulations that also hold a passive tracer, a further channel of inputs and outputs. Fine-tuning
and training from scratch take equal numbers of steps of equal networks, hence equal CPU time, which
is measured; each uses the best of two learning rates by its validation loss. The error is the RMSE
of one step over that of persistence on 6 other simulations, the mean over variables. One thread.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from _measure import machine

from scitoolkit.core.config import load_config
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.job import EmulationJob
from scitoolkit.io.fields import write_fields

CELLS, LENGTH, FRAMES, STEP, BETWEEN, SPINUP = 64, 32.0, 32, 0.05, 40, 30
VISCOSITY, OTHER, MIXING, DECAY = 1.0, 0.5, 0.1, 0.2
LEARNING, FEW, HELD, TEST = 24, 8, 2, 6
STEPS, FEW_STEPS, RATES = 1000, 300, (1e-3, 3e-3)
JOB = f"""
domain: emulation
data: {{path: PATH, test: TEST, inputs: [u], outputs: [u]}}
split: {{by: simulation, train: LEARN, validation: {HELD}, test: 0}}
boundary: {{x: circular}}
symmetries: {{shift: [x]}}
model: {{name: unet, widths: [16, 32]}}
rollout: {{long: 0, evaluate: 8}}
training: {{batch_size: 8, progress: false, log_every: 100, optimizer: {{name: adamw}}}}
"""
CASES = {
    "viscosity": (OTHER, []),
    "channel": (VISCOSITY, ["data.inputs=[u, tracer]", "data.outputs=[u, tracer]"]),
}


def run() -> dict:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "trained", VISCOSITY, 0, LEARNING + HELD)
        write(folder / "trained_test", VISCOSITY, 900, TEST)
        source = trained(folder, "trained", [f"training.steps={STEPS}"], RATES[1:])
        out: dict = {"source": scores(source)}
        for number, (case, (viscosity, settings)) in enumerate(CASES.items(), start=1):
            write(folder / case, viscosity, 100 * number, FEW + HELD)
            write(folder / f"{case}_test", viscosity, 900 + 10 * number, TEST)
            few = [*settings, f"training.steps={FEW_STEPS}"]
            start = [f"start={{path: {source.path}, new_variables: add}}"]
            ways = {
                "scratch": trained(folder, case, few, RATES),
                "fine_tuned": trained(folder, case, [*few, *start], RATES),
            }
            out[case] = {way: scores(run) for way, run in ways.items()}
            pair = [out[case][way] for way in ("fine_tuned", "scratch")]
            out[f"{case}_over_scratch"] = pair[0]["error"] / pair[1]["error"]
            out[f"{case}_cpu_over_scratch"] = pair[0]["cpu_seconds"] / pair[1]["cpu_seconds"]
    return {**out, "machine": machine()}


def trained(folder: Path, case: str, settings: list[str], rates: tuple[float, ...]) -> RunDirectory:
    """Return the run with the lowest validation loss among learning rates."""
    count = LEARNING if case == "trained" else FEW
    text = JOB.replace("PATH", str(folder / case)).replace("TEST", str(folder / f"{case}_test"))
    path = folder / f"{case}.yaml"
    path.write_text(text.replace("LEARN", str(count)))
    runs = []
    for rate in rates:
        options = [*settings, f"training.optimizer.lr={rate}", f"run.root={folder / 'runs'}"]
        config = load_config(EmulationConfig, path, options)
        run = RunDirectory.create(folder / "runs", f"{case}_{time.time_ns()}", config)
        EmulationJob().train(config, run)
        runs.append(run)
    return min(runs, key=lambda run: ModelFolder(run.path).record()["best"]["loss"])


def scores(run: RunDirectory) -> dict:
    """Return the mean error over persistence of one step and of 8, and the CPU time."""
    metrics = EmulationJob().evaluate(run.path).metrics

    def mean(start: str) -> float:
        values = [float(v) for n, v in metrics.items() if n.startswith(start)]
        return float(np.mean(values))

    folder = ModelFolder(run.path)
    config, record = folder.config(EmulationConfig), folder.record()
    return {
        "error": mean("one_step_over_persistence_"),
        "rollout8": mean("rollout8_over_persistence_"),
        "cpu_seconds": record["cpu_seconds"],
        "lr": config.training.optimizer.lr,
        "steps": record["steps"],
    }


def write(folder: Path, viscosity: float, seed: int, count: int) -> None:
    """Write simulations of the velocity u and a tracer, one a file."""
    folder.mkdir()
    coords = {
        "time": ("time", STEP * BETWEEN * np.arange(FRAMES)),
        "x": ("x", LENGTH * np.arange(CELLS) / CELLS),
    }
    frames = np.stack(list(frames_of(viscosity, seed, count)), 2).astype(np.float32)
    for number, simulation in enumerate(frames):
        fields = {n: (("time", "x"), v) for n, v in zip(("u", "tracer"), simulation, strict=True)}
        write_fields(xr.Dataset(fields, coords), folder / f"run{number:02d}.nc")


def frames_of(
    viscosity: float, seed: int, count: int, *, frames: int = FRAMES, between: int = BETWEEN
) -> Iterator[np.ndarray]:
    """Yield (simulations, (u, tracer), x), `between` steps apart.

    RK4, with the linear terms as an integrating factor:

    u_t + u u_x + u_xx + viscosity u_xxxx = 0; the tracer moves with u, spreads with MIXING, decays
    with DECAY and has a source, one wave of amplitude 1/2 in the box.
    """
    k = 2 * np.pi / LENGTH * np.arange(CELLS // 2 + 1)
    resolved = np.arange(CELLS // 2 + 1) < CELLS / 3
    half = np.exp(np.stack([k**2 - viscosity * k**4, -MIXING * k**2 - DECAY]) * STEP / 2)
    source = np.zeros((2, CELLS // 2 + 1))
    source[1, 1] = CELLS / 4
    noise = np.random.default_rng(seed).standard_normal((count, CELLS))
    state = np.fft.rfft(np.stack([0.1 * noise, np.zeros_like(noise)], 1)) * resolved

    def carried(state: np.ndarray) -> np.ndarray:
        velocity = np.fft.irfft(state[:, :1], CELLS)
        gradient = np.fft.irfft(1j * k * state, CELLS)
        return source - np.fft.rfft(velocity * gradient) * resolved

    spinup = SPINUP * BETWEEN // between
    for frame in range(spinup + frames):
        if frame >= spinup:
            yield np.fft.irfft(state, CELLS)
        for _ in range(between):
            a = carried(state)
            b = carried(half * (state + STEP / 2 * a))
            c = carried(half * state + STEP / 2 * b)
            d = carried(half * (half * state + STEP * c))
            state = half**2 * (state + STEP / 6 * a) + half * STEP / 3 * (b + c) + STEP / 6 * d

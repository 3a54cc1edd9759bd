"""Emulators within equal CPU seconds: ours, and networks of three libraries.

neuraloperator's FNO and TFNO, the Well's U-Nets, PhysicsNeMo's FNO (one dim) and AFNO (two dims).
Kuramoto-Sivashinsky (one dim), decaying turbulence, Rayleigh-Bénard convection and shallow water on
the sphere: the same trajectories for all, one input and one output frame, models of 1 to 2 million
parameters. Each gets three learning rates in short runs, selected by the one-step error on
validation trajectories, and then one long run at the best. All are scored by the same code: VRMSE
by the Well's definition (over cells of each frame and field), after one step from every test frame
and as the mean over steps 13 to 30 of rollouts from the first.

With PYTHONPATH=benchmarks, `python benchmarks/emulation/emulation_peers.py --fit 20 --trial 5
--problems kuramoto_sivashinsky` runs a part of it within other budgets, as EMULATION_PEERS_FIT and
EMULATION_PEERS_TRIAL do for `benchmarks/run.py`. Finished problems are kept as `_progress` tells.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import machine
from _places import PEERS
from _progress import Progress
from _shallow_water import ShallowWater

from scitoolkit.core.config import load_config
from scitoolkit.core.errors import NumericalError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.job import EmulationJob
from scitoolkit.emulation.metrics import vrmse
from scitoolkit.emulation.rollout import rollout, step_once
from scitoolkit.generators.base import Generator
from scitoolkit.generators.decaying_turbulence import DecayingTurbulence
from scitoolkit.generators.gray_scott import GrayScott
from scitoolkit.generators.kuramoto_sivashinsky import KuramotoSivashinsky
from scitoolkit.generators.rayleigh_benard import RayleighBenard
from scitoolkit.io.fields import write_fields

FIT = float(os.environ.get("EMULATION_PEERS_FIT", 300.0))
TRIAL = float(os.environ.get("EMULATION_PEERS_TRIAL", 60.0))
FIRST_SEED = 1000
"""Networks and rates of ours were looked for on the trajectories of seeds below it."""
STEPS, LATE, WORST = 30, slice(12, 30), 10.0
"""Steps of rollouts, those of the Well's window 13:30, and what an error is cut at."""
OUR_RATES, PEER_RATES = (1e-3, 3e-3, 9e-3), (5e-4, 2e-3, 8e-3)
ONE_DIM = ("fno", "tfno", "unet_classic", "physicsnemo_fno")
TWO_DIMS = ("fno", "tfno", "unet_classic", "unet_convnext", "physicsnemo_afno")
COMPARED = ("kuramoto_sivashinsky", "decaying_turbulence", "rayleigh_benard", "shallow_water")


@dataclass(frozen=True)
class Problem:
    """Trajectories of a generator, and the sections of the configuration of our emulator.

    Attributes:
        generator: with settings.
        variables: of its frames, the state.
        seeds: training, validation and test trajectories.
        batch: samples per step of all models.
        peers: peers that support its number of dims.
        sections: configuration of the equations and the network.
    """

    generator: Generator | ShallowWater
    variables: Sequence[str]
    seeds: tuple[int, int, int]
    batch: int
    peers: Sequence[str]
    sections: Sequence[str]


PROBLEMS = {
    "kuramoto_sivashinsky": Problem(
        KuramotoSivashinsky(length=64.0, cells=128, frames=64),
        ["u"],
        (32, 4, 8),
        16,
        ONE_DIM,
        [
            "boundary={x: circular}",
            "symmetries.shift=[x]",
            "symmetries.mirror={x: [u]}",
            # A step takes less time than one of a U-Net of as many parameters.
            "model={name: fno, width: 64, modes: [32]}",
            "training.optimizer.name=adamw",
            "rollout.steps=1",
            "guards=[{name: spectral_filter}, {name: fixed_mean, values: {u: 0.0}}]",
        ],
    ),
    "gray_scott": Problem(
        GrayScott(cells=64, spinup=100, frames=40),
        ["a", "b"],
        (8, 2, 4),
        4,
        TWO_DIMS,
        [
            "boundary={x: circular, y: circular}",
            "symmetries.shift=[x, y]",
            "symmetries.mirror={x: [], y: []}",
            "model={name: unet, widths: [56, 112, 160], blocks: 1}",
        ],
    ),
    "decaying_turbulence": Problem(
        DecayingTurbulence(cells=64, viscosity=1e-2, peak=4.0, interval=20, spinup=5, frames=40),
        ["vorticity"],
        (8, 2, 4),
        4,
        TWO_DIMS,
        [
            "boundary={x: circular, y: circular}",
            "symmetries.shift=[x, y]",
            "model={name: unet, widths: [48, 96, 128, 128], blocks: 1, patch: 2}",
            "guards=[{name: fixed_mean, values: {vorticity: 0.0}}]",
        ],
    ),
    "shallow_water": Problem(
        ShallowWater(),
        ["h", "u", "v"],
        (8, 2, 4),
        4,
        TWO_DIMS,
        [
            # Waves of height cross several cells in a step, so that global modes are worth more
            # than the cells beyond a pole, which they do not have.
            "boundary={latitude: edge, longitude: circular}",
            "coordinates=[latitude]",
            "symmetries.shift=[longitude]",
            "model={name: fno, width: 32, modes: [10, 12]}",
            "training.optimizer.name=adamw",
            "rollout.steps=1",
        ],
    ),
    "rayleigh_benard": Problem(
        RayleighBenard(levels=64, frames=40),
        ["p", "b", "u", "w"],
        (8, 2, 4),
        4,
        TWO_DIMS,
        [
            "boundary={x: circular}",
            "coordinates=[z]",
            "transport={x: 10, z: 12}",
            "symmetries.shift=[x]",
            "symmetries.mirror={x: [u], z: [b, w]}",
            "model={name: unet, widths: [48, 96, 128, 128], blocks: 1, patch: 2}",
            "guards=[{name: divergence_free, velocity: {x: u, z: w}}, "
            "{name: fixed_mean, values: {w: 0.0}, over: [x]}, "
            "{name: wall_values, values: {b: [0.5, -0.5]}, dim: z}]",
        ],
    ),
}


def run(fit: float = FIT, trial: float = TRIAL, problems: Sequence[str] = COMPARED) -> dict:
    """Return the figures.

    Args:
        fit: CPU seconds of a long run.
        trial: CPU seconds of a run that a learning rate is chosen by.
        problems: names of those that are run.
    """
    torch.set_num_threads(1)
    progress = Progress("emulation_peers")
    figures = {}
    for name in problems:

        def measure(problem: Problem = PROBLEMS[name]) -> dict[str, Any]:
            with tempfile.TemporaryDirectory() as folder:
                return _problem(problem, Path(folder), fit, trial)

        figures[name], _ = progress.part(f"{name} {fit:g} {trial:g}", measure)
        print(json.dumps({name: figures[name]}), file=sys.stderr)
    return {
        "one_step_ratio_max": max(each["one_step_ratio"] for each in figures.values()),
        "rollout_ratio_max": max(each["rollout_ratio"] for each in figures.values()),
        "fit_cpu_seconds": fit,
        "trial_cpu_seconds": trial,
        **figures,
        "machine": machine(),
    }


def _problem(problem: Problem, folder: Path, fit: float, trial: float) -> dict[str, Any]:
    frames = write_trajectories(problem, folder)
    bounds = np.cumsum([0, *problem.seeds])
    parts = {
        n: frames[a:b]
        for n, a, b in zip(("train", "validation", "test"), bounds[:-1], bounds[1:], strict=True)
    }
    np.savez(folder / "problem.npz", batch=problem.batch, steps=STEPS, **parts)
    scores = {"scitoolkit": our_scores(problem, folder, parts["test"], fit, trial)}
    for peer in problem.peers:
        scores[peer] = _peer(peer, folder, parts["test"], fit, trial)
    rivals = [scores[peer] for peer in problem.peers]
    own = scores["scitoolkit"]
    return {
        "one_step_ratio": own["one_step"] / min(r["one_step"] for r in rivals),
        "rollout_ratio": own["rollout"] / min(r["rollout"] for r in rivals),
        "persistence": scored(persistence(parts["test"]), parts["test"]),
        "models": scores,
    }


def write_trajectories(problem: Problem, folder: Path) -> np.ndarray:
    """Write a file a seed; return all frames, (seed, time, variable, *grid) float32."""
    out = []
    for seed in range(sum(problem.seeds)):
        data = problem.generator.generate(FIRST_SEED + seed).frames[list(problem.variables)]
        write_fields(data, folder / f"seed{seed:03d}.nc")
        out.append(np.stack([data[n].values for n in data.data_vars], 1).astype(np.float32))
    return np.stack(out)


def _peer(name: str, folder: Path, test: np.ndarray, fit: float, trial: float) -> dict[str, Any]:
    output = folder / f"{name}.npz"
    command = [
        str(PEERS / ("physicsnemo" if name.startswith("physicsnemo") else "well") / "bin/python"),
        str(Path(__file__).with_name("_emulation_peer.py")),
        name,
        str(folder / "problem.npz"),
        ",".join(map(str, PEER_RATES)),
        str(trial),
        str(fit),
        str(output),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-3000:]}")
    with np.load(output) as file:
        return {**scored(dict(file), test), **json.loads(done.stdout.splitlines()[-1])}


def our_scores(
    problem: Problem, folder: Path, test: np.ndarray, fit: float, trial: float
) -> dict[str, Any]:
    def train_ours(rate: float, steps: int) -> tuple[dict, EmulationConfig, RunDirectory]:
        config = load_config(EmulationConfig, None, _settings(problem, folder, rate, steps))
        directory = RunDirectory.create(config.run.root, f"rate{rate}steps{steps}", config)
        EmulationJob().train(config, directory)
        record = json.loads((directory.path / "model" / "fit.json").read_text())
        return record, config, directory

    # The trainer counts steps: two short runs tell what one costs, and what comes before the first,
    # the reading of the files, which no peer is charged for either.
    short, longer = (train_ours(OUR_RATES[1], n)[0]["cpu_seconds"] for n in (10, 40))
    each = max((longer - short) / 30, 1e-4)
    before = max(short - 10 * each, 0.0)

    def steps_in(seconds: float) -> int:
        return max(int(seconds / each), 10)

    trials: dict[float, float] = {}
    overrun = 1.0
    for rate in OUR_RATES:
        try:
            record, _, _ = train_ours(rate, steps_in(trial))
        except NumericalError as error:
            print(error, file=sys.stderr)
            trials[rate] = float("inf")
            continue
        trials[rate] = record["best"]["loss"]
        # Rollouts in training make later steps dearer: what a trial took corrects the count.
        overrun = max(overrun, (record["cpu_seconds"] - before) / trial)
    # A rate may diverge later than its trial ends: then the long run takes the next best.
    for best in sorted(trials, key=lambda rate: trials[rate]):
        with suppress(NumericalError):
            record, config, directory = train_ours(best, int(steps_in(fit) / overrun))
            break
    else:
        raise NumericalError("every learning rate diverges", allowed=str(OUR_RATES))
    emulator = surrogate.load(directory.path / "model", config)
    assert isinstance(emulator, Emulator)
    return {
        **scored(_forecasts(emulator, test), test),
        "rate": best,
        "trials": list(trials.values()),
        "validation": record["best"]["loss"],
        "steps": record["steps"],
        "cpu_seconds": record["cpu_seconds"] - before,
        "parameters": sum(p.numel() for p in emulator.parameters()),
        "step_ms": _step_ms(emulator, test[0, 0]),
    }


def _step_ms(emulator: Emulator, frame: np.ndarray) -> float:
    """Return the CPU milliseconds of one step, the median of 20."""
    state = dict(zip([v.name for v in emulator.layout.outputs], frame, strict=True))
    seconds = []
    for _ in range(20):
        begin = time.process_time()
        step_once(emulator, state)
        seconds.append(time.process_time() - begin)
    return 1e3 * float(np.median(seconds))


def _settings(problem: Problem, folder: Path, rate: float, steps: int) -> list[str]:
    variables = ", ".join(problem.variables)
    learning, validation, test = problem.seeds
    return [
        "domain=emulation",
        f"data.path={folder}/seed*.nc",
        f"data.inputs=[{variables}]",
        f"data.outputs=[{variables}]",
        f"split.train={learning}",
        f"split.validation={validation}",
        f"split.test={test}",
        "rollout={steps: 2, begin: 0.7}",
        f"training={{steps: {steps}, batch_size: {problem.batch}, ema_decay: 0.99, clip_norm: 1.0, "
        f"optimizer: {{name: muon, lr: {rate}}}, progress: false, "
        f"schedule: {{name: cosine, warmup_steps: {max(steps // 20, 1)}}}}}",
        f"run.root={folder}/runs",
        *problem.sections,
    ]


def _forecasts(emulator: Emulator, test: np.ndarray) -> dict[str, np.ndarray]:
    """Return our forecasts like `_emulation_peer.forecasts`; NaN after the end of a rollout."""
    names = [v.name for v in emulator.layout.outputs]

    def named(values: np.ndarray) -> dict[str, np.ndarray]:
        return dict(zip(names, values, strict=True))

    def joined(frame: dict[str, np.ndarray]) -> np.ndarray:
        return np.stack([frame[n] for n in names])

    one = [[joined(step_once(emulator, named(x))) for x in series[:-1]] for series in test]
    rolled = np.full((len(test), STEPS, *test.shape[2:]), np.nan, np.float32)
    for number, series in enumerate(test):
        try:
            for step, frame in enumerate(rollout(emulator, named(series[0]), STEPS)):
                rolled[number, step] = joined(frame)
        except NumericalError as error:
            print(error, file=sys.stderr)
    return {"one_step": np.array(one), "rollout": rolled}


def persistence(test: np.ndarray) -> dict[str, np.ndarray]:
    return {"one_step": test[:, :-1], "rollout": np.repeat(test[:, :1], STEPS, axis=1)}


def scored(forecasts: dict[str, np.ndarray], test: np.ndarray) -> dict[str, float]:
    """Return the mean VRMSE after one step and over the late steps of rollouts."""
    rolled = forecasts["rollout"][:, LATE]
    truth = test[:, 1 + LATE.start : 1 + LATE.stop]
    return {
        "one_step": _mean_vrmse(test[:, 1:], forecasts["one_step"]),
        "rollout": _mean_vrmse(truth, rolled),
    }


def _mean_vrmse(truth: np.ndarray, forecast: np.ndarray) -> float:
    """Return the mean over trajectories, times and fields; non-finite values count as WORST."""
    rows, size = (-1, *truth.shape[3:]), truth.shape[:3]
    pairs = zip(truth.reshape(rows), forecast.reshape(rows), strict=True)
    found = np.array([vrmse(a.astype(float), b) for a, b in pairs]).reshape(size)
    return float(np.minimum(np.nan_to_num(found, nan=WORST, posinf=WORST), WORST).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", type=float, default=FIT, help="CPU seconds of a long run")
    parser.add_argument("--trial", type=float, default=TRIAL, help="CPU seconds of a rate's run")
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(COMPARED))
    given = parser.parse_args()
    print(json.dumps(run(given.fit, given.trial, given.problems), indent=1))

"""Gauss-Newton compared with Adam and scipy's least_squares on three fits; Jorge and its peers.

Both optimizers run in the trainer, on the same task, batch (the whole set) and start, in CPU time
on one thread. Adam has a cosine schedule and the best of three rates; the time of the other rates
is not counted. `least_squares` gets our Jacobian and Adam's time. The small potential is fitted at
two widths, and both count: a ratio is null if Gauss-Newton never reaches Adam's loss. Jorge's peers
come from pytorch-optimizer, each with the best of its rates, and run in a separate environment
(`make peers`): `jorge_over_X` is Jorge's time to X's final test loss over X's time, the median over
seeds, null if Jorge does not reach it in most seeds.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from _places import PEERS, ROOT

PEER = PEERS / "optimizers" / "bin" / "python"
RATES = (3e-3, 1e-2, 3e-2)
STEPS = {"forecast": 2500, "poisson": 1500, "potential": 2500}
SCIPY_LABEL = {True: "trf", False: "lm"}


class Clock:
    """A callback that notes CPU time and loss of every step, and ends a training."""

    wants_every_step = False

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds, self.times, self.losses = seconds, [], []
        self.should_stop = False

    def on_fit_start(self, trainer) -> None:
        self._start = time.process_time()

    def on_log(self, trainer, values) -> None:
        self.times.append(time.process_time() - self._start)
        self.losses.append(values["loss"])
        self.should_stop = self.seconds is not None and self.times[-1] > self.seconds

    def on_validation(self, trainer, values) -> None: ...
    def on_fit_end(self, trainer) -> None: ...

    def reached(self, loss: float) -> float | None:
        pairs = zip(self.times, self.losses, strict=True)
        return next((time for time, value in pairs if value <= loss), None)


def trained(make, steps: int, seconds: float | None = None, **settings) -> tuple[Clock, object]:
    from scitoolkit.testing.loaders import TensorLoader
    from scitoolkit.training import Trainer, TrainingConfig

    task, clock = make(), Clock(seconds)
    samples = len(next(iter(task.data.values())))
    config = TrainingConfig(
        steps=steps, batch_size=samples, log_every=1, progress=False, device="cpu", **settings
    )
    loader = TensorLoader(task.data, samples, shuffle=False)
    Trainer(task, config, callbacks=[clock]).fit(loader)
    return clock, task


def residuals_of(task):
    """Return the residuals of a task over the batch of a step, and parameters as plain tensors."""
    from scitoolkit.testing.loaders import TensorLoader
    from scitoolkit.training.optim.residuals import StepResiduals

    names, parameters = zip(*task.model.named_parameters(), strict=True)
    samples = len(next(iter(task.data.values())))
    [batch] = TensorLoader(task.data, samples, shuffle=False)
    residuals = StepResiduals(task, names, [batch], samples, lambda tensor: tensor)
    return residuals, [p.detach().clone() for p in parameters]


def by_scipy(make, seconds: float) -> dict:
    """Return the loss that least_squares reaches in `seconds` with our residuals and Jacobian."""
    import torch
    from scipy.optimize import least_squares

    class Over(Exception):
        pass

    task = make()
    samples = len(next(iter(task.data.values())))
    residuals, parameters = residuals_of(task)
    sizes = [p.numel() for p in parameters]
    begun, best, calls = time.process_time(), [float("inf")], [0]

    def weights(flat):
        parts = torch.tensor(flat).split(sizes)
        return [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]

    def values(flat):
        if time.process_time() - begun > seconds:
            raise Over
        calls[0] += 1
        found = residuals.values(weights(flat))
        best[0] = min(best[0], float(found.square().sum()))
        return found.numpy()

    start = torch.cat([p.flatten() for p in parameters]).numpy()
    method = SCIPY_LABEL[sum(sizes) > samples]
    try:
        least_squares(
            values,
            start,
            lambda w: residuals.rows(weights(w))[1].numpy(),
            method=method,
            x_scale="jac",
        )
    except Over:
        pass
    return {
        "method": method,
        "loss": best[0],
        "evaluations": calls[0],
        "seconds": time.process_time() - begun,
    }


def one_fit(make, steps: int) -> dict:
    import torch

    runs = {}
    for rate in RATES:
        optimizer = {"name": "adam", "lr": rate}
        clock, _ = trained(make, steps, optimizer=optimizer, schedule={"name": "cosine"})
        runs[rate] = clock
    rate = min(runs, key=lambda r: min(runs[r].losses))
    adam = runs[rate]
    best, seconds = min(adam.losses), adam.times[-1]
    ours, task = trained(make, 10_000, seconds, optimizer={"name": "gauss_newton"})
    untrained = make()
    with torch.no_grad():
        first = float(untrained.metrics(untrained.data)["loss"])
        final = float(task.metrics(task.data)["loss"])
    reached = ours.reached(best)
    # No ratio is printed unless the steps report the loss of the task, and the weights have the
    # loss that the steps reported. The first is seen before a step: a loss that is all rounding
    # depends on the order of its sums. For the second it is summed by the code of the steps, of
    # the same batch: tensors with other strides, or with gradients, are summed in another order.
    if not abs(first - ours.losses[0]) <= 1e-12 * first:
        raise SystemExit(f"red gate: the steps begin at loss {ours.losses[0]} instead of {first}")
    residuals, weights = residuals_of(task)
    recomputed = float(residuals.values(weights).square().sum())
    if not recomputed <= ours.losses[-1]:
        raise SystemExit(f"red gate: loss {recomputed} after steps that reported {ours.losses[-1]}")
    return {
        "parameters": sum(p.numel() for p in task.model.parameters()),
        "residuals": len(next(iter(task.data.values()))),
        "adam_rate": rate,
        "adam_steps": steps,
        "adam_loss": best,
        "adam_seconds": seconds,
        "gauss_newton_loss": final,
        "gauss_newton_steps": len(ours.losses),
        "gauss_newton_seconds_to_adam": reached,
        "time_ratio": None if reached is None else reached / seconds,
        "residual_over_adam": final / best,
        "least_squares": by_scipy(make, seconds),
    }


def run() -> dict:
    import torch
    from _measure import machine
    from _second_order_fits import FITS, narrow_potential

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    trained(FITS["potential"], 3, optimizer={"name": "gauss_newton"})  # imports, first compilation
    fits = {name: one_fit(make, STEPS[name]) for name, make in FITS.items()}
    narrow = one_fit(narrow_potential, STEPS["potential"])
    counted = [*fits.values(), narrow]
    ratios = [fit["time_ratio"] for fit in counted]
    figures = {
        "gauss_newton_time_ratio_max": None if None in ratios else max(ratios),
        "gauss_newton_time_ratio_pde": fits["poisson"]["time_ratio"],
        "residual_over_adam": max(fit["residual_over_adam"] for fit in counted),
    }
    return {**figures, **rivals(), "fits": fits, "narrow_potential": narrow, **machine()}


def rivals() -> dict:
    """Run `_second_order_rivals.py` in the environment of pytorch-optimizer."""
    if not PEER.exists():
        print("no .venv-peers/optimizers: `make peers`; Jorge is left out", file=sys.stderr)
        return dict.fromkeys(("jorge_over_shampoo", "jorge_over_adamw", "jorge_over_soap"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [PEER, Path(__file__).with_name("_second_order_rivals.py")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
    )
    return json.loads(done.stdout.splitlines()[-1])

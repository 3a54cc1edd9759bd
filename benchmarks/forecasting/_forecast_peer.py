"""PyDMD, pySINDy and opinf on the files of `forecast_families`.

`python _forecast_peer.py FOLDER NAME ...` prints JSON, {series: {peer: RMSE}}. Each peer gets the
coefficients of the same modes, the same training steps and the same test windows (every eighth),
and selects its penalty on the same validation steps.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")
EVERY, LIMIT = 8, 1e3


class Task:
    """One series: standardised coefficients, training steps, and the windows to forecast."""

    def __init__(self, path: Path) -> None:
        file = np.load(path)
        self.fitted, self.validated = int(file["fitted"]), int(file["validated"])
        self.inputs, self.leads = int(file["inputs"]), int(file["leads"])
        raw = file["coefficients"]
        self.scale = raw[: self.fitted].std(axis=0)
        self.z = raw / self.scale
        self.modes, self.mean, self.values = file["modes"], file["climatology"], file["values"]
        self.last = file["starts"][::EVERY] + self.inputs - 1

    def rmse(self, forecast) -> float:
        """Return the field's RMSE of `forecast(step) -> (lead, mode)` over the test windows."""
        total = 0.0
        for step in self.last:
            z = np.clip(np.nan_to_num(forecast(step), nan=LIMIT), -LIMIT, LIMIT)
            field = self.mean + (z * self.scale) @ self.modes
            total += ((field - self.values[step + 1 : step + 1 + self.leads]) ** 2).mean()
        return float(np.sqrt(total / len(self.last)))

    def validation_error(self, forecast) -> float:
        steps = range(self.validated + self.inputs, self.fitted - self.leads, EVERY)
        errors = [forecast(i) - self.z[i + 1 : i + 1 + self.leads] for i in steps]
        value = float(np.mean([(e**2).mean() for e in errors]))
        return value if np.isfinite(value) else np.inf


def opinf_map(task: Task, operators: str):
    """Operator inference of a discrete model, its penalty chosen on validation."""
    import opinf

    def model(penalty, end):
        solver = opinf.lstsq.L2Solver(penalty)
        return opinf.models.DiscreteModel(operators, solver=solver).fit(task.z[:end].T)

    def forecaster(fitted):
        return lambda i: fitted.predict(task.z[i], task.leads + 1)[:, 1:].T

    penalties = (1e-6, 1e-4, 1e-2, 1.0, 100.0)
    best = min(
        penalties,
        key=lambda p: task.validation_error(forecaster(model(p, task.validated))),
    )
    return forecaster(model(best, task.fitted))


def sindy_map(task: Task, degree: int):
    """Sparse identification of a discrete model."""
    import pysindy

    model = pysindy.DiscreteSINDy(
        optimizer=pysindy.STLSQ(threshold=1e-3),
        feature_library=pysindy.PolynomialLibrary(degree),
    )
    model.fit(task.z[: task.fitted], t=1)
    return lambda i: model.simulate(task.z[i], task.leads + 1)[1:]


def sindy_ode(task: Task):
    """Sparse identification of a differential equation, fourth-order differences."""
    import pysindy

    model = pysindy.SINDy(
        optimizer=pysindy.STLSQ(threshold=0.02),
        feature_library=pysindy.PolynomialLibrary(2),
        differentiation_method=pysindy.FiniteDifference(order=4),
    )
    model.fit(task.z[: task.fitted], t=1.0)
    settings = {"method": "RK45", "rtol": 1e-5, "atol": 1e-7}
    times = np.arange(task.leads + 1.0)
    return lambda i: model.simulate(task.z[i], times, integrator_kws=settings)[1:]


def delay_dmd(task: Task):
    """DMD of delay vectors of all input steps."""
    import pydmd

    modes, delays = task.z.shape[1], task.inputs

    def vector(i):
        return task.z[i - delays + 1 : i + 1][::-1].reshape(-1, 1)

    record = np.concatenate([vector(i) for i in range(delays - 1, task.fitted)], axis=1)
    model = pydmd.DMD(svd_rank=min(4 * modes, record.shape[0])).fit(record)

    def forecast(i):
        state, out = vector(i), []
        for _ in range(task.leads):
            state = model.predict(state).real
            out.append(state[:modes, 0])
        return np.array(out)

    return forecast


def contestants(task: Task) -> dict:
    found = {"PyDMD, delays": lambda: delay_dmd(task)}
    modes = task.z.shape[1]
    found["opinf quadratic"] = lambda: opinf_map(task, "cAH")
    found["pySINDy map, quadratic"] = lambda: sindy_map(task, 2)
    found["pySINDy equation, quadratic"] = lambda: sindy_ode(task)
    if modes <= 8:
        found["opinf cubic"] = lambda: opinf_map(task, "cAHG")
        found["pySINDy map, cubic"] = lambda: sindy_map(task, 3)
    return found


def main(contestants: Callable[[Task], dict]) -> None:
    """Print the RMSE of every contestant of every series of the command line."""
    folder, names, scores = Path(sys.argv[1]), sys.argv[2:], {}
    for name in names:
        task, scores[name] = Task(folder / f"{name}.npz"), {}
        for peer, make in contestants(task).items():
            begun = time.process_time()
            try:
                scores[name][peer] = task.rmse(make())
            except Exception as error:  # a peer that fails on a series has no figure there
                print(f"{name}: {peer}: {error!r}", file=sys.stderr)
            print(f"{name} {peer} {time.process_time() - begun:.1f} CPU-s", file=sys.stderr)
    print(json.dumps(scores))


if __name__ == "__main__":
    main(contestants)

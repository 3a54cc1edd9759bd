"""The shipped `auto` compared with PyDMD, pySINDy and opinf on synthetic series, SC20 and ERSSTv5.

Every series is a file; the forecaster is selected, fitted and tested by the forecasting job, closed
forms only, on the first 62.5 % + 12.5 % of the steps (SC20: its published 427 training weeks), and
tested on the rest, 8 input and 8 output steps. Nothing is selected on test data. Peers get the same
modes, split and test windows, in a separate environment (`make peers`). `beaten_by` lists the
methods that are better on a test part by more than a block bootstrap attributes to noise: rows of
our tables, and peers.

Lyapunov times in steps: Lorenz-63 22.1, Lorenz-96 11.9, Kuramoto-Sivashinsky (L = 22) 83.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
from _forecasts import folder, forecast
from _places import PEERS

SCRIPTS = {"forecasting": "_forecast_peer.py", "shred": "_shred_peer.py"}
SERIES = ("lorenz63", "lorenz96", "lorenz96_noise", "ks", "waves", "sc20", "ersst")
FOR_PEERS = SERIES[:5]
LYAPUNOV = {"lorenz63": 22.1, "lorenz96": 11.9, "lorenz96_noise": 11.9, "ks": 83.0}
ROLLOUTS, VALID = 12, 0.4
LSTM_EPOCHS = 12


def valid_times(forecaster, windows, steps: int) -> np.ndarray:
    """Return per start the steps until the field's RMSE exceeds 0.4 standard deviations."""
    values = windows.series.values
    last = np.linspace(windows.starts[0], len(values) - steps - windows.inputs, ROLLOUTS)
    chosen = type(windows)(windows.series, last.astype(int), windows.inputs, steps)
    error = np.sqrt(((forecaster.predict(chosen) - chosen.targets()) ** 2).mean(axis=-1))
    late = error > VALID * values.std()
    return np.where(late.any(axis=1), np.maximum(late.argmax(axis=1), 1), steps)


def lstm(surrogate, windows):
    """Return an LSTM in the same modes, fitted to the same steps."""
    from scitoolkit.forecasting.forecasters.lstm import LstmCorrectionConfig

    config = LstmCorrectionConfig(network={"hidden": 48}, members=1, epochs=LSTM_EPOCHS)
    train = type(windows.series)(*(a[: windows.starts[0]] for a in windows.series))
    return config.build(surrogate.setting).fit([train])


class InBlocks:
    """Feeds a forecaster of as many leads as inputs with its own output, block after block."""

    def __init__(self, forecaster):
        self.forecaster = forecaster

    def predict(self, windows):
        length, blocks = windows.inputs, -(-windows.leads // windows.inputs)
        values, out = windows.input_values(), []
        for _ in range(blocks):
            padded = np.concatenate([values, np.zeros_like(values)], axis=1)
            flat = padded.reshape(-1, padded.shape[-1])
            series = type(windows.series)(flat, np.full(len(flat), np.nan))
            starts = 2 * length * np.arange(len(values))
            values = self.forecaster.predict(type(windows)(series, starts, length, length))
            out.append(values)
        return np.concatenate(out, axis=1)[:, : windows.leads]


def peers(folder: Path, names: list[str]) -> dict:
    """Return {series: {peer: RMSE}} of the peers, on files with modes and test windows."""
    found: dict = {}
    for group, script in SCRIPTS.items():
        python = PEERS / group / "bin" / "python"
        if python.exists():
            done = subprocess.run(
                [str(python), str(Path(__file__).with_name(script)), str(folder), *names],
                check=True,
                capture_output=True,
                text=True,
            )
            for name, scores in json.loads(done.stdout).items():
                found.setdefault(name, {}).update(scores)
    return found


def for_peers(surrogate, windows, path: Path, fitted: int) -> None:
    """Write modes, coefficients and test windows for the peers."""
    frame_values = windows.series.values
    climatology = surrogate.climatology.at(windows.series.years)
    np.savez(
        path.with_suffix(".npz"),
        coefficients=surrogate.project(frame_values - climatology),
        modes=surrogate.modes,
        climatology=climatology[0],
        values=frame_values,
        starts=windows.starts,
        inputs=windows.inputs,
        leads=windows.leads,
        fitted=fitted,
        validated=int(len(frame_values) * 0.625),
    )


def beaten_by(name: str, results, theirs: dict[str, float]) -> list[str]:
    """Return the methods that are better on the test part beyond noise."""
    found = [
        f"{name}: {line}"
        for line in results.summary
        if "; better: " in line and "(beyond noise" in line
    ]
    ours = results.metrics["rmse"]
    return found + [f"{name}: {peer} {v:.4g}" for peer, v in theirs.items() if v < 0.99 * ours]


def run() -> dict:
    from scitoolkit.forecasting.metrics import r2_uniform

    figures: dict = {"winners": {}, "cpu_seconds": {}, "rmse": {}, "valid_time": {}, "table": {}}
    for name in SERIES:
        path, surrogate, results, record, windows, seconds = forecast(name)
        figures["rmse"][name] = results.metrics["rmse"]
        figures["winners"][name] = record["winner"]
        figures["cpu_seconds"][name] = round(seconds, 1)
        figures["table"][name] = {row[0]: row[-1] for row in results.tables[0].rows}
        if name in LYAPUNOV:
            steps = int(min(12 * LYAPUNOV[name], 700))
            valid = valid_times(surrogate.forecaster, windows, steps)
            figures["valid_time"][name] = float(np.median(valid)) / LYAPUNOV[name]
        if name in FOR_PEERS:
            for_peers(surrogate, windows, path, record["steps"]["validation"][1])
    for name in ("lorenz63", "lorenz96", "lorenz96_noise", "waves", "ersst"):
        figures[f"{name}_rmse"] = figures["rmse"][name]
    figures["ks_valid_time"] = figures["valid_time"]["ks"]
    coefficients = forecast("sc20").windows
    figures["sc20_r2"] = r2_uniform(
        coefficients.targets(), forecast("sc20").surrogate.forecast(coefficients)
    )
    figures |= lstm_figures(figures["ks_valid_time"])
    theirs = peers(folder(), list(FOR_PEERS))
    figures["beaten_by"] = [
        line
        for name in SERIES
        for line in beaten_by(name, forecast(name).results, theirs.get(name, {}))
    ]
    figures["peers"] = theirs or "peers are not installed"
    return figures


def lstm_figures(ours: float) -> dict:
    """Return error and valid time of an LSTM on Kuramoto-Sivashinsky, and our ratio to it."""
    done = forecast("ks")
    network = lstm(done.surrogate, done.windows)
    error = network.predict(done.windows) - done.windows.targets()
    valid = float(np.median(valid_times(InBlocks(network), done.windows, 64))) / LYAPUNOV["ks"]
    return {
        "ks_lstm_rmse": float(np.sqrt((error**2).mean())),
        "ks_lstm_valid_time": valid,
        "ks_over_lstm": ours / valid,
    }

"""The shipped `auto` on series with known floors, SC20, ERSSTv5; PyDMD, pySINDy, opinf beside.

Every series is a file; the forecaster is chosen, fitted and tested by the forecasting job, closed
forms only, on the first 62.5 % + 12.5 % of the steps (SC20: its own 427 training weeks), and tested
on the rest, 8 steps in, 8 out. Nothing is chosen on test. Peers get the same modes, split and test
windows, in an environment of their own (`make peers`). `beaten_by` lists whoever is better on a
test part by more than a block bootstrap calls noise: rows of our own tables, and peers.

Lyapunov times in steps: Lorenz-63 22.1, Lorenz-96 11.9, Kuramoto-Sivashinsky (L = 22) 83.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import xarray as xr
from _series import kuramoto_sivashinsky, lorenz63, lorenz96, waves

HERE = Path(__file__).resolve().parent
PEER = HERE.parent / ".venv-peers" / "forecasting" / "bin" / "python"
ERSST = HERE.parent / "datasets" / "ersst_v5" / "ersstv5_monthly_2deg_201001-202008.nc"
SHARED = Path(os.environ.get("SCITOOLKIT_SHARED", Path(__file__).parents[2] / "shared"))
SPLIT = {"train": 0.625, "validation": 0.125, "test": 0.25}
LYAPUNOV = {"lorenz63": 22.1, "lorenz96": 11.9, "lorenz96_noise": 11.9, "ks": 83.0}
ROLLOUTS, VALID = 12, 0.4
LSTM_EPOCHS = 12


def series() -> dict[str, tuple]:
    """Return (field, rank) of every made series."""
    return {
        "lorenz63": (lorenz63(), 3),
        "lorenz96": (lorenz96(), 5),
        "lorenz96_noise": (lorenz96(noise=0.1), 5),
        "ks": (kuramoto_sivashinsky(), 16),
        "waves": (waves(), 6),
    }


def write(field, path: Path, times=None) -> Path:
    dims = ("time", "y", "x") if field.ndim == 3 else ("time", "x")
    array = xr.DataArray(field, dims=dims, name="u")
    if times is not None:
        array = array.assign_coords(time=times)
    array.to_dataset().to_netcdf(path, engine="h5netcdf")
    return path


def sc20(path: Path) -> tuple[Path, dict]:
    """Return a file of the SC20 coefficients, and the split by which its own test part is ours."""
    import forecast_sc20

    train, test, _ = forecast_sc20.read()
    week = np.timedelta64(7, "D")
    first = np.datetime64("1981-11-01", "ns") + week * np.arange(len(train.values))
    second = np.datetime64("1990-01-03", "ns") + week * np.arange(len(test.values))
    # No area: every coefficient counts by its own variance, as in R² uniform.
    values = np.concatenate([train.values, test.values]) / train.values.std(axis=0)
    count = len(train.values)
    split = {"train": count - 72, "validation": 72, "test": len(test.values)}
    return write(values, path, np.concatenate([first, second])), split


def trained(path: Path, rank: int, split: dict, variable: str = "u", **more):
    """Return (surrogate, results, record, windows, CPU seconds) of the shipped job."""
    from scitoolkit.core.model_folder import ModelFolder
    from scitoolkit.core.run_directory import RunDirectory
    from scitoolkit.forecasting.config import ForecastingConfig
    from scitoolkit.forecasting.data import divide, read_field
    from scitoolkit.forecasting.job import ForecastingJob
    from scitoolkit.forecasting.surrogate import ForecastSurrogate

    config = ForecastingConfig(
        data={"path": path, "variable": variable}, split=split, pod={"rank": rank},
        **{"model": {"name": "none"}, **more},
    )  # fmt: skip
    job, run = ForecastingJob(), RunDirectory.create(path.parent / "runs", path.stem, config)
    begun = time.process_time()
    job.train(config, run)
    seconds = time.process_time() - begun
    results, model = job.evaluate(run.path), ModelFolder(run.path)
    surrogate = ForecastSurrogate.load(model.path)
    windows = divide(read_field(config.data), config).windows["test"]
    return surrogate, results, model.record(), windows, seconds


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
    if not PEER.exists():
        return {}
    done = subprocess.run(
        [str(PEER), str(HERE / "_forecast_peer.py"), str(folder), *names],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def for_peers(surrogate, windows, path: Path, fitted: int) -> None:
    """Write modes, coefficients and test windows for the peers."""
    frame_values = windows.series.values
    climatology = surrogate.climatology.at(windows.series.years)
    np.savez(
        path.with_suffix(".npz"), coefficients=surrogate.project(frame_values - climatology),
        modes=surrogate.modes, climatology=climatology[0], values=frame_values,
        starts=windows.starts, inputs=windows.inputs, leads=windows.leads, fitted=fitted,
        validated=int(len(frame_values) * 0.625),
    )  # fmt: skip


def beaten_by(name: str, results, theirs: dict[str, float]) -> list[str]:
    """Return who is better on the test part beyond noise."""
    found = [f"{name}: {line}" for line in results.summary if "(beyond noise" in line]
    ours = results.metrics["rmse"]
    return found + [f"{name}: {peer} {v:.4g}" for peer, v in theirs.items() if v < 0.99 * ours]


def run() -> dict:
    from scitoolkit.forecasting.metrics import r2_uniform

    figures: dict = {"winners": {}, "cpu_seconds": {}, "candidates": {}, "valid_time": {}}
    beaten: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder, done = Path(temporary), {}
        for name, (field, rank) in series().items():
            path = write(field, folder / f"{name}.nc")
            done[name] = trained(path, rank, SPLIT)
            surrogate, results, record, windows, seconds = done[name]
            figures[f"{name}_rmse"] = results.metrics["rmse"]
            figures["winners"][name] = record["winner"]
            figures["cpu_seconds"][name] = round(seconds, 1)
            figures["candidates"][name] = {
                row[0]: row[-1] for row in results.tables[0].rows if row[0] != "surrogate"
            }
            if name in LYAPUNOV:
                steps = int(min(12 * LYAPUNOV[name], 700))
                valid = valid_times(surrogate.forecaster, windows, steps)
                figures["valid_time"][name] = float(np.median(valid)) / LYAPUNOV[name]
            for_peers(surrogate, windows, path, record["steps"]["validation"][1])
        theirs = peers(folder, list(done))
        for name, (_, results, *_) in done.items():
            beaten += beaten_by(name, results, theirs.get(name, {}))
        figures["ks_valid_time"] = figures["valid_time"]["ks"]
        surrogate, _, _, windows, _ = done["ks"]
        network = lstm(surrogate, windows)
        error = network.predict(windows) - windows.targets()
        figures["ks_lstm_rmse"] = float(np.sqrt((error**2).mean()))
        valid = valid_times(InBlocks(network), windows, 64)
        figures["ks_lstm_valid_time"] = float(np.median(valid)) / LYAPUNOV["ks"]
        figures["ks_over_lstm"] = figures["ks_valid_time"] / figures["ks_lstm_valid_time"]
        path, split = sc20(folder / "sc20.nc")
        surrogate, results, record, windows, seconds = trained(path, 5, split)
        figures["sc20_r2"] = r2_uniform(windows.targets(), surrogate.forecast(windows))
        figures["winners"]["sc20"] = record["winner"]
        figures["cpu_seconds"]["sc20"] = round(seconds, 1)
        beaten += beaten_by("sc20", results, {})
        copy = folder / ERSST.name
        copy.symlink_to(ERSST)
        _, results, record, _, seconds = trained(copy, 5, SPLIT, "sst")
        figures["ersst_rmse"] = results.metrics["rmse"]
        figures["winners"]["ersst"] = record["winner"]
        figures["cpu_seconds"]["ersst"] = round(seconds, 1)
        beaten += beaten_by("ersst", results, {})
    figures["beaten_by"] = beaten
    figures["peers"] = theirs or "peers are not installed"
    return figures

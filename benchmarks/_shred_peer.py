"""pyshred on the files of `forecast_families`, in an environment of its own: `python _shred_peer.py
FOLDER NAME ...`, as JSON {series: {peer: RMSE}}.

Every coefficient is a sensor, so that nothing has to be reconstructed: the latent states of an LSTM
are advanced by its LSTM forecaster, and decoded. It sees as many more steps before a window as its
lags, and stops its training on the validation steps. Its other forecaster, a sparse map of 64
latent states, takes minutes a series.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from _forecast_peer import Task
from pyshred import SHRED, DataManager, LSTM_Forecaster, SHREDEngine

warnings.filterwarnings("ignore")
EPOCHS = 200


def forecaster(task: Task):
    """Return forecast(step) of a fitted model."""
    torch.manual_seed(0)
    share = task.validated / task.fitted
    manager = DataManager(task.inputs, train_size=share, val_size=1 - share, test_size=0.0)
    z = task.z[: task.fitted]
    manager.add_data(z, "z", measurements=z, compress=False)
    train, validation, *_ = manager.prepare()
    model = SHRED(
        sequence_model="LSTM",
        decoder_model="MLP",
        latent_forecaster=LSTM_Forecaster(lags=task.inputs),
    )
    model.fit(train, validation, num_epochs=EPOCHS, verbose=False)
    engine = SHREDEngine(manager, model)
    states = engine.sensor_to_latent(task.z)
    seed = task.inputs

    def forecast(i: int) -> np.ndarray:
        ahead = engine.forecast_latent(task.leads, states[i - seed + 1 : i + 1])
        return engine.decode(ahead)["z"]

    return forecast


def main() -> None:
    torch.set_num_threads(1)
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    scores: dict[str, dict[str, float]] = {}
    for name in names:
        task, begun = Task(folder / f"{name}.npz"), time.process_time()
        try:
            scores[name] = {"pyshred, LSTM": task.rmse(forecaster(task))}
        except Exception as error:  # a peer that fails on a series has no figure there
            print(f"{name}: pyshred: {error!r}", file=sys.stderr)
        print(f"{name} pyshred {time.process_time() - begun:.1f} CPU-s", file=sys.stderr)
    print(json.dumps(scores))


if __name__ == "__main__":
    main()

"""Peer of `forecast_families`: pyshred, in a separate environment.

`python _shred_peer.py FOLDER NAME ...` prints JSON, {series: {peer: RMSE}}. Every coefficient is a
sensor, so that nothing has to be reconstructed: the latent states of an LSTM are advanced by its
LSTM forecaster, and decoded. It also receives as many steps before each window as it has lags, and
stops training by the validation steps. Its other forecaster, a sparse map of 64 latent states,
takes minutes per series and is not run.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from _forecast_peer import Task, main
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(lambda task: {"pyshred, LSTM": lambda: forecaster(task)})

"""Three small fits with residuals: a forecast read-out, a Poisson equation, a potential."""

from __future__ import annotations

import h5py
import numpy as np
import torch
from _places import ROOT, SHARED
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from scitoolkit.io.atoms import open_atoms

SST = SHARED / "data" / "forecast" / "sc20_noaa_oisst_pod_coefficients.h5"
ACAC = ROOT / "datasets" / "acac" / "train_300K.xyz"
WINDOW = 8


def network(inputs: int, width: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
    return nn.Sequential(*layers, nn.Linear(width, 1)).double()


class Regression:
    """Scalar targets of vectors; the loss is the mean squared error."""

    def __init__(self, inputs: Tensor, targets: Tensor, width: int) -> None:
        self.data = {"x": inputs, "y": targets}
        self.model = network(inputs.shape[1], width)

    def residual(self, parameters, sample):
        return functional_call(self.model, parameters, (sample["x"][None],))[0, 0] - sample["y"]

    def loss(self, batch):
        return (self.model(batch["x"])[:, 0] - batch["y"]).square().mean(), {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch):
        return len(batch["x"])


class Poisson:
    """-u'' = f on (-1, 1) by collocation, u = 0 at the ends through the factor 1 - x^2."""

    def __init__(self, points: int = 128, width: int = 20) -> None:
        x = torch.linspace(-1, 1, points, dtype=torch.float64)
        wave = 3 * torch.pi
        self.data = {"x": x, "f": wave**2 * torch.sin(wave * x) / 10}
        self.model = network(1, width)

    def residual(self, parameters, sample):
        def u(x):
            return (1 - x * x) * functional_call(self.model, parameters, (x[None, None],))[0, 0]

        return -grad(grad(u))(sample["x"]) - sample["f"]

    def loss(self, batch):
        names = dict(self.model.named_parameters())
        return vmap(self.residual, (None, 0))(names, batch).square().mean(), {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch):
        return len(batch["x"])


def standardised(values: np.ndarray) -> Tensor:
    return torch.from_numpy((values - values.mean(0)) / values.std(0))


def forecast() -> Regression:
    """Next week's first POD coefficient of sea temperature from eight weeks of five."""
    with h5py.File(SST) as file:
        series = file["train"][:].astype(np.float64)
    count = len(series) - WINDOW
    windows = np.stack([series[i : i + WINDOW].ravel() for i in range(count)])
    return Regression(standardised(windows), standardised(series[WINDOW:, 0]), width=10)


def potential(width: int = 10) -> Regression:
    """Energies of acetylacetone from the inverse distances of its 15 atoms."""
    source = open_atoms(ACAC)
    frames = [source[index] for index in range(len(source))]
    positions = np.stack([frame.positions for frame in frames])
    energies = np.array([frame.energy for frame in frames])
    i, j = np.triu_indices(positions.shape[1], 1)
    inverse = 1 / np.linalg.norm(positions[:, i] - positions[:, j], axis=-1)
    return Regression(standardised(inverse), standardised(energies), width)


def narrow_potential() -> Regression:
    """Six units a layer, between 105 inputs and one output."""
    return potential(6)


FITS = {"forecast": forecast, "poisson": Poisson, "potential": potential}

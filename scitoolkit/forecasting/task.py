"""Forecasting task of the trainer: mean squared error of standardised mode coefficients."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.forecasting.lstm import NetworkEnsemble


class ForecastTask:
    """Training of an ensemble whose members have the same targets.

    The loss is the mean over members. They share no weights, so each is trained independently.

    Args:
        model: the ensemble. Batches have `inputs` (batch, inputs, feature) and `targets`
            (batch, lead, mode), both standardised.
    """

    def __init__(self, model: NetworkEnsemble) -> None:
        self.model = model

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor | float]]:
        """Return the mean squared error, dimensionless."""
        error = self.model(batch["inputs"]) - batch["targets"]
        return (error**2).mean(), {}

    def metrics(self, batch: Batch) -> dict[str, Tensor | float]:
        """Return `loss`, and `mse_ensemble` for the mean of the members."""
        members = self.model(batch["inputs"])
        error = members - batch["targets"]
        centre = members.mean(dim=0) - batch["targets"]
        return {"loss": (error**2).mean(), "mse_ensemble": (centre**2).mean()}

    def batch_size(self, batch: Batch) -> int:
        """Return the number of windows in a batch."""
        return len(batch["inputs"])

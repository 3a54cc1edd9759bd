"""Correction of another forecaster in the leading modes by an ensemble of LSTMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from scitoolkit.core.plugins import Choice
from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    ForecasterConfig,
    Memo,
    Setting,
    forecasters,
    prefixed,
    within,
)
from scitoolkit.forecasting.forecasters.climatology import (
    Climatology,
    ClimatologyConfig,
    last_anomaly,
)
from scitoolkit.forecasting.forecasters.frames import modes_of, unbroken
from scitoolkit.forecasting.network_config import NetworkConfig
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows, all_windows


class LstmCorrection(Forecaster):
    """Base forecast plus the forecast of its error in the leading modes by LSTMs.

    Args:
        base: forecaster to correct.
        setting: window, modes and weights.
        network: configuration of the networks.
        members: number of networks, which differ by their initialisation.
        epochs: of training by `fit`; a job uses its trainer instead.
        seed: of the initialisation.

    Attributes:
        networks_: the ensemble.
        factors_: (lead,) factors of the correction, 1 until set from validation data.
    """

    def __init__(
        self,
        base: Forecaster,
        setting: Setting,
        network: NetworkConfig,
        members: int,
        epochs: int = 30,
        seed: int = 0,
    ) -> None:
        self.base, self.setting, self.network = base, setting, network
        self.members, self.epochs, self.seed = members, epochs, seed
        self.climatology: Climatology = Climatology(setting.harmonics)
        self.modes_: Array
        self.networks_: Any = None
        self.factors_: Array = np.ones(setting.leads)

    def begin(self, segments: Sequence[TimeSeries], modes: Array | None = None) -> LstmCorrection:
        """Fit base, climatology and modes, and create untrained networks; return self.

        Args:
            segments: training stretches.
            modes: (mode, cell) patterns, orthonormal under the weights; None computes them.
        """
        self.base.fit(segments)
        self.climatology.fit(segments)
        if modes is None:
            values = np.concatenate([self.climatology.anomalies(s).values for s in segments])
            modes = modes_of(
                values, self.setting.weights, self.setting.modes, self.setting.parameters
            )
        self.modes_ = modes
        dated = all(bool(np.isfinite(s.years).all()) for s in segments)
        self.seasonal_: bool = self.network.seasonal_inputs and dated
        self.input_scale_: Array = np.ones(len(modes))
        self.target_scale_: Array = np.ones(len(modes))
        self.networks_ = self.make_networks(self.seed)
        return self

    def make_networks(self, seed: int) -> Any:
        """Return an untrained ensemble, deterministic for a seed."""
        from scitoolkit.forecasting.lstm import make_ensemble

        return make_ensemble(
            self.network,
            len(self.modes_),
            self.setting.inputs,
            self.setting.leads,
            seasonal=self.seasonal_,
            members=self.members,
            seed=seed,
        )

    def standardise(self, windows: Windows) -> LstmCorrection:
        """Set the scales of inputs and targets from training windows; return self."""
        modes = len(self.modes_)
        self.input_scale_ = _deviation(self.inputs(windows)[..., :modes].reshape(-1, modes))
        self.target_scale_ = _deviation(self.targets(windows).reshape(-1, modes))
        return self

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> LstmCorrection:
        """Fit the base, then train the networks on its error, without a run directory."""
        import torch

        from scitoolkit.forecasting.lstm import fit_in_memory

        self.begin(segments)
        length = self.setting.inputs + self.setting.leads
        windows = [
            all_windows(s, self.setting.inputs, self.setting.leads)
            for s in unbroken(segments, length)
        ]
        self.standardise(max(windows, key=len))
        x = torch.from_numpy(np.concatenate([self.inputs(w) for w in windows]))
        y = torch.from_numpy(np.concatenate([self.targets(w) for w in windows]))
        for member, network in enumerate(self.networks_.members):
            fit_in_memory(network, x, y, epochs=self.epochs, seed=self.seed + member)
        return self

    def refit_base(self, segments: Sequence[TimeSeries]) -> LstmCorrection:
        """Refit base and climatology to more data; modes and networks are unchanged."""
        self.base.fit(segments)
        self.climatology.fit(segments)
        return self

    def predict(self, windows: Windows) -> Array:
        """Return the corrected forecast, (window, lead, cell)."""
        return self.base.predict(windows) + self.factors_[:, None] * self.correction(windows)

    def correction(self, windows: Windows) -> Array:
        """Return the mean correction by the networks, (window, lead, cell), without `factors_`."""
        import torch

        with torch.no_grad():
            members = self.networks_.eval()(torch.from_numpy(self.inputs(windows)))
        return (members.mean(dim=0).double().numpy() * self.target_scale_) @ self.modes_

    def inputs(self, windows: Windows) -> np.ndarray:
        """Return the network inputs (window, inputs, feature), float32.

        Features are the standardised coefficients of anomalies and, optionally, cos and sin of the
        season.
        """
        lags = reversed(range(windows.inputs))
        anomalies = [last_anomaly(self.climatology, windows, lag) for lag in lags]
        x = np.stack([self.project(a) for a in anomalies], axis=1) / self.input_scale_
        if self.seasonal_:
            angle = 2 * np.pi * windows.input_years()[..., None]
            x = np.concatenate([x, np.cos(angle), np.sin(angle)], axis=2)
        return x.astype(np.float32)

    def targets(self, windows: Windows) -> np.ndarray:
        """Return standardised coefficients of the base's error, (window, lead, mode) float32."""
        error = windows.targets() - self.base.predict(windows)
        return (self.project(error) / self.target_scale_).astype(np.float32)

    def project(self, values: Array) -> Array:
        """Return coefficients (..., mode) of anomalies (..., cell)."""
        return (values * self.setting.weights) @ self.modes_.T

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of base, climatology and networks."""
        networks = {k: v.cpu().numpy() for k, v in self.networks_.state_dict().items()}
        return {
            **prefixed("base", self.base.arrays()),
            **prefixed("climatology", self.climatology.arrays()),
            **prefixed("network", networks),
            "modes": self.modes_,
            "factors": self.factors_,
            "input_scale": self.input_scale_,
            "target_scale": self.target_scale_,
            "seasonal": np.array(int(self.seasonal_)),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> LstmCorrection:
        """Restore the fitted state from `arrays`; return self."""
        import torch

        self.base.restore(within("base", arrays))
        self.climatology.restore(within("climatology", arrays))
        self.modes_, self.factors_ = arrays["modes"], arrays["factors"]
        self.input_scale_, self.target_scale_ = arrays["input_scale"], arrays["target_scale"]
        self.seasonal_ = bool(arrays["seasonal"])
        self.networks_ = self.make_networks(self.seed)
        weights = {k: torch.from_numpy(v) for k, v in within("network", arrays).items()}
        self.networks_.load_state_dict(weights)
        return self


def _deviation(values: Array) -> Array:
    spread = values.std(axis=0)
    return np.where(spread > 0, spread, 1.0).astype(np.float64)


class LstmCorrectionConfig(ForecasterConfig):
    """Ensemble of LSTMs that corrects another forecaster in the leading modes.

    Attributes:
        base: forecaster to correct.
        network: configuration of the networks.
        members: number of networks.
        epochs: of training without a trainer.
        seed: of the initialisation.
    """

    title: ClassVar[str] = "POD-LSTM"
    closed_form: ClassVar[bool] = False
    compared: ClassVar[bool] = False

    name: Literal["lstm"] = "lstm"
    base: Annotated[ForecasterConfig, Choice(forecasters)] = ClimatologyConfig()
    network: NetworkConfig = NetworkConfig()
    members: PositiveInt = 3
    epochs: PositiveInt = 30
    seed: NonNegativeInt = 0

    def build(self, setting: Setting) -> LstmCorrection:
        """Return the unfitted model."""
        return LstmCorrection(
            self.base.build(setting), setting, self.network, self.members, self.epochs, self.seed
        )

    def refuses(self, setting: Setting) -> str:
        """Return the reason of the base."""
        return self.base.refuses(setting)

    def label(self) -> str:
        """Return the labels of base and networks."""
        return f"{self.base.label()} + {self.title}"

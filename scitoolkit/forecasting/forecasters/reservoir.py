"""Echo state network: a fixed random recurrent network with a linear readout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from scitoolkit.forecasting.forecasters.base import ForecasterConfig, Setting
from scitoolkit.forecasting.forecasters.frames import Frame, Modes
from scitoolkit.forecasting.forecasters.recursive import Recursive, lagged_rows
from scitoolkit.forecasting.forecasters.regression import RidgePath
from scitoolkit.forecasting.windows import Array

DENSITY = 0.02


class Reservoir(Recursive):
    """Echo state network with a linear readout of state, coordinates and squared states.

    In training and in forecasts, the network is driven from rest through the input steps, so that
    no earlier steps are required.

    Args:
        frame: coordinates.
        size: number of neurons.
        radius: spectral radius of the recurrent weights.
        gain: scale of the input weights.
        penalty: of the ridge regression of the readout.
        inputs: number of steps that drive the state.
        seed: of the random weights.

    Source:
        Jaeger 2001, GMD report 148; squares as in Pathak et al. 2017, doi:10.1063/1.5010300.
    """

    readout_: Array

    def __init__(
        self,
        frame: Frame,
        size: int,
        radius: float,
        gain: float,
        penalty: float,
        inputs: int,
        seed: int = 0,
    ) -> None:
        super().__init__(frame, inputs)
        self.size, self.radius, self.gain = size, radius, gain
        self.penalty, self.seed = penalty, seed

    def key(self) -> tuple[Any, ...]:
        """Return the settings that the reservoir state depends on."""
        return "reservoir", self.size, self.radius, self.gain, self.seed

    def drive(self, state: Array, x: Array) -> Array:
        """Return the state after an input (row, coordinate)."""
        return np.tanh(state @ self._recurrent.T + x @ self._inputs[1:] + self._inputs[0])

    def memory_of(self, lagged: list[Array]) -> list[Array]:
        """Return the newest coordinates, and the state after driving through all inputs."""
        if not hasattr(self, "_recurrent"):
            self._recurrent, self._inputs = random_weights(
                self.size, lagged[0].shape[-1], self.radius, self.gain, self.seed
            )
        state = np.zeros((len(lagged[0]), self.size))
        for x in reversed(lagged):
            state = self.drive(state, x)
        return [lagged[0], state]

    def features(self, memory: Sequence[Array]) -> Array:
        """Return (row, feature): 1, coordinates, state, squares of every other neuron."""
        x, state = memory
        return np.concatenate([np.ones((len(x), 1)), x, state, state[:, ::2] ** 2], axis=1)

    def prepare(self, stretches: Sequence[Array]) -> tuple[RidgePath, Array]:
        """Return the ridge path of the readout and the rotated increments."""
        now, after = lagged_rows(stretches, self.lags, self.reach)
        path = RidgePath(self.features(self.memory_of([now[:, k] for k in range(self.lags)])))
        return path, path.rotate(after - now[:, 0])

    def solve(self, prepared: tuple[RidgePath, Array]) -> None:
        """Solve for the readout."""
        path, rotated = prepared
        self.readout_ = path.solve(rotated, self.penalty)

    def advance(self, memory: list[Array]) -> list[Array]:
        """Return coordinates and state after one step."""
        x = memory[0] + self.features(memory) @ self.readout_
        return [x, self.drive(memory[1], x)]

    def fitted(self) -> dict[str, np.ndarray]:
        """Return the readout; the random weights are regenerated from the seed."""
        return {"readout": self.readout_}

    def set_fitted(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the readout."""
        self.readout_ = arrays["readout"]


@lru_cache(maxsize=16)
def random_weights(
    size: int, channels: int, radius: float, gain: float, seed: int
) -> tuple[Array, Array]:
    """Return recurrent weights (size, size) and input weights (channels + 1, size), bias first."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((size, size))
    recurrent = dense * (rng.random((size, size)) < max(DENSITY, 4 / size))
    largest = np.abs(np.linalg.eigvals(recurrent)).max()
    inputs = rng.uniform(-1, 1, (channels + 1, size)) * gain / np.sqrt(channels)
    return recurrent * (radius / max(largest, 1e-12)), inputs


class ReservoirConfig(ForecasterConfig):
    """Echo state network in the modes.

    Attributes:
        size: number of neurons.
        radius: spectral radius; None is selected by validation.
        gain: scale of the input weights.
        penalty: of the readout; None is selected by validation.
        seed: of the random weights.
    """

    title: ClassVar[str] = "reservoir"

    name: Literal["reservoir"] = "reservoir"
    size: PositiveInt = 400
    radius: float | None = Field(default=None, gt=0)
    gain: float = Field(default=0.5, gt=0)
    penalty: float | None = Field(default=None, gt=0)
    seed: NonNegativeInt = 0

    def build(self, setting: Setting) -> Reservoir:
        """Return the unfitted model."""
        return Reservoir(
            Modes(setting),
            self.size,
            self.radius or 0.4,
            self.gain,
            self.penalty or 1e-4,
            setting.inputs,
            self.seed,
        )

    def refuses(self, setting: Setting) -> str:
        """Return a reason if the record is too short for the size of the readout."""
        enough = setting.rows >= 2 * self.size
        return "" if enough else f"{self.size} neurons are too many for {setting.rows} steps"

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return candidates with different spectral radii and penalties."""
        return self.fill(radius=(0.4, 0.9), penalty=(1e-7, 1e-4, 1e-2))

"""Polynomial stencil: one polynomial of the neighbours for all cells of a periodic grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from scitoolkit.forecasting.forecasters.base import ForecasterConfig, Setting
from scitoolkit.forecasting.forecasters.frames import GridPoints
from scitoolkit.forecasting.forecasters.neighbours import neighbours, no_grid, num_neighbours
from scitoolkit.forecasting.forecasters.polynomial import PolynomialMap
from scitoolkit.forecasting.forecasters.recursive import lagged_rows
from scitoolkit.forecasting.forecasters.regression import RidgePath, monomials, num_monomials
from scitoolkit.forecasting.windows import Array

MOST_ROWS = 24_000
MOST_FEATURES = 400


class Stencil(PolynomialMap):
    """Translation-equivariant map: a polynomial of the neighbours at the last steps.

    Args:
        shape: of the periodic grid.
        radius: of the box of neighbours.
        degree: of the polynomial.
        lags: number of last states in the polynomial.
        penalty: of the ridge regression.

    Source:
        local next generation reservoir computing, Barbosa & Gauthier 2022, doi:10.1063/5.0098707.
    """

    def __init__(
        self, shape: tuple[int, ...], radius: int, degree: int, lags: int, penalty: float
    ) -> None:
        super().__init__(GridPoints(), degree, lags, penalty)
        self.shape, self.radius = shape, radius

    def key(self) -> tuple[Any, ...]:
        """Return the settings that `prepare` depends on: radius, degree and lags."""
        return "stencil", self.radius, self.degree, self.lags

    def features(self, memory: Sequence[Array]) -> Array:
        """Return the features (..., cell, feature) of the last states, newest first."""
        near = [neighbours(x, self.shape, self.radius) for x in memory]
        return monomials(np.concatenate(near, axis=-1), self.degree)

    def prepare(self, stretches: Sequence[Array]) -> tuple[RidgePath, Array]:
        """Return the ridge path over cells and (subsampled) steps, and the rotated increments."""
        now, after = lagged_rows(stretches, self.lags, self.reach)
        stride = max(1, len(now) * now.shape[2] // MOST_ROWS)
        now, after = now[::stride], after[::stride]
        features = self.features([now[:, k] for k in range(self.lags)])
        path = RidgePath(features.reshape(-1, features.shape[-1]))
        return path, path.rotate((after - now[:, 0]).reshape(-1, 1))

    def advance(self, memory: list[Array]) -> list[Array]:
        """Return the memory after one step."""
        return [memory[0] + (self.features(memory) @ self.weights_)[..., 0], *memory[:-1]]


class StencilConfig(ForecasterConfig):
    """One polynomial of the neighbours for all cells of a periodic grid without masked cells.

    Settings that are None are selected by validation.

    Attributes:
        radius: of the box of neighbours.
        lags: number of last states.
        degree: of the polynomial.
        penalty: of the ridge regression.
    """

    title: ClassVar[str] = "local polynomial stencil"

    name: Literal["stencil"] = "stencil"
    radius: PositiveInt | None = None
    lags: PositiveInt | None = None
    degree: PositiveInt = 2
    penalty: float | None = Field(default=None, gt=0)

    def build(self, setting: Setting) -> Stencil:
        """Return the unfitted model."""
        assert setting.shape is not None
        return Stencil(
            setting.shape, self.radius or 1, self.degree, self.lags or 1, self.penalty or 1e-2
        )

    def refuses(self, setting: Setting) -> str:
        """Return a reason if cells have no neighbours or the box has too many features."""
        if why := no_grid(setting):
            return why
        return "" if self._fits(setting, self) else "the box of neighbours has too many features"

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return candidates with different radii, lags and penalties."""
        pairs = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (4, 1)]
        chosen = [
            self.model_copy(
                update={
                    "radius": self.radius or radius,
                    "lags": self.lags or lags,
                }
            )
            for radius, lags in pairs
        ]
        fitting = [c for c in dict.fromkeys(chosen) if self._fits(setting, c)]
        return [c for base in fitting for c in base.fill(penalty=(1e-7, 1e-4, 1e-2))]

    def work(self, setting: Setting) -> float:
        """Return cells times features of the smallest box."""
        return float(len(setting.weights) * self._features(setting, self))

    def _features(self, setting: Setting, config: StencilConfig) -> int:
        assert setting.shape is not None
        near = num_neighbours(setting.shape, config.radius or 1) * (config.lags or 1)
        return num_monomials(near, config.degree)

    def _fits(self, setting: Setting, config: StencilConfig) -> bool:
        return (
            self._features(setting, config) <= MOST_FEATURES
            and (config.lags or 1) <= setting.inputs
        )

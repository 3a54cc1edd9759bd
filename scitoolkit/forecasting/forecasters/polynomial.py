"""Polynomial maps of the last states: linear, quadratic and cubic (NG-RC, OpInf), DMD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from scitoolkit.core.config import refuse_unused
from scitoolkit.forecasting.forecasters.base import ForecasterConfig, Setting, forecasters
from scitoolkit.forecasting.forecasters.frames import Frame, Modes
from scitoolkit.forecasting.forecasters.recursive import Recursive, lagged_rows
from scitoolkit.forecasting.forecasters.regression import RidgePath, monomials, num_monomials
from scitoolkit.forecasting.windows import Array

MOST_FEATURES = 1200
LAGS = {1: (1, 2, 4, 8), 2: (1, 2, 3), 3: (1, 2)}
"""Numbers of last states that are tried, by degree."""
PENALTIES = {
    1: (1e-7, 1e-4, 1e-2, 1e-1),
    2: (1e-8, 1e-6, 1e-4, 1e-2),
    3: (1e-8, 1e-6, 1e-4, 1e-2),
}
"""Ridge penalties that are tried, by degree."""


class PolynomialMap(Recursive):
    """Polynomial map from the last states to the increment of the state, by ridge regression.

    Args:
        frame: coordinates.
        degree: of the polynomial.
        lags: number of last states in the polynomial.
        penalty: ridge penalty on features with mean square 1.

    Source:
        operator inference, Peherstorfer & Willcox 2016, doi:10.1016/j.cma.2016.03.025; next
        generation reservoir computing, Gauthier et al. 2021, doi:10.1038/s41467-021-25801-2.
    """

    weights_: Array

    def __init__(self, frame: Frame, degree: int, lags: int, penalty: float) -> None:
        super().__init__(frame, lags)
        self.degree: int = degree
        self.penalty: float = penalty

    def key(self) -> tuple[Any, ...]:
        """Return the settings that `prepare` depends on: degree and lags."""
        return "polynomial", self.degree, self.lags

    def features(self, memory: Sequence[Array]) -> Array:
        """Return the features (row, feature) of the last states, newest first."""
        return monomials(np.concatenate(memory, axis=-1), self.degree)

    def prepare(self, stretches: Sequence[Array]) -> tuple[RidgePath, Array]:
        """Return the ridge path of the features and the rotated increments."""
        now, after = lagged_rows(stretches, self.lags, self.reach)
        path = RidgePath(self.features([now[:, k] for k in range(self.lags)]))
        return path, path.rotate(after - now[:, 0])

    def solve(self, prepared: tuple[RidgePath, Array]) -> None:
        """Solve for the coefficients."""
        path, rotated = prepared
        self.weights_ = path.solve(rotated, self.penalty)

    def advance(self, memory: list[Array]) -> list[Array]:
        """Return the memory after one step."""
        return [memory[0] + self.features(memory) @ self.weights_, *memory[:-1]]

    def fitted(self) -> dict[str, np.ndarray]:
        """Return the coefficients, (feature, coordinate)."""
        return {"weights": self.weights_}

    def set_fitted(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the coefficients."""
        self.weights_ = arrays["weights"]


class Delays(PolynomialMap):
    """Linear map of the last states, projected on their leading singular vectors (DMD).

    Args:
        frame: coordinates.
        lags: number of last states.
        rank: number of singular vectors.

    Source:
        DMD, Schmid 2010, doi:10.1017/S0022112010001217; Hankel-DMD, Arbabi & Mezić 2017,
        doi:10.1137/17M1125236.
    """

    def __init__(self, frame: Frame, lags: int, rank: int) -> None:
        super().__init__(frame, 1, lags, 0.0)
        self.rank: int = rank

    def key(self) -> tuple[Any, ...]:
        """Return the settings that `prepare` depends on: lags and rank."""
        return "delays", self.lags, self.rank

    def prepare(self, stretches: Sequence[Array]) -> Any:
        """Return the coefficients; there is no penalty."""
        now, after = lagged_rows(stretches, self.lags, self.reach)
        states = now.reshape(len(now), -1)
        vectors = np.linalg.eigh(states.T @ states)[1][:, ::-1][:, : self.rank]
        design = np.concatenate([np.ones((len(states), 1)), states @ vectors], axis=1)
        solution = np.linalg.lstsq(design, after - now[:, 0], rcond=None)[0]
        return np.concatenate([solution[:1], vectors @ solution[1:]])

    def solve(self, prepared: Any) -> None:
        """Store the coefficients."""
        self.weights_ = prepared


@forecasters.register("polynomial_map")
class PolynomialMapConfig(ForecasterConfig):
    """Polynomial map of the last states in the modes, by ridge regression.

    Degrees 2 and 3 are operator inference or a next-generation reservoir.

    Attributes:
        degree: of the polynomial.
        lags: number of last states; None is selected by validation.
        penalty: of the ridge regression; None is selected by validation.
    """

    title: ClassVar[str] = "polynomial map"
    in_title: ClassVar[tuple[str, ...]] = ("degree",)

    name: Literal["polynomial_map"] = "polynomial_map"
    degree: Literal[1, 2, 3] = 2
    lags: PositiveInt | None = None
    penalty: float | None = Field(default=None, gt=0)

    def build(self, setting: Setting) -> PolynomialMap:
        """Return the unfitted model."""
        lags, penalty = self.lags or 1, self.penalty or PENALTIES[self.degree][-1]
        return PolynomialMap(Modes(setting), self.degree, lags, penalty)

    @classmethod
    def variants(cls) -> list[ForecasterConfig]:
        """Return the cubic, the linear and the quadratic map."""
        return [cls(degree=3), cls(degree=1), cls(degree=2)]

    def titled(self) -> str:
        """Return the name in tables."""
        return {1: "linear map with lags", 2: "quadratic map", 3: "cubic map"}[self.degree]

    def refuses(self, setting: Setting) -> str:
        """Return a reason if there are too few input steps or too many features."""
        if self._fits(setting, self.lags or 1):
            return ""
        if (self.lags or 1) > setting.inputs:
            return f"{self.lags} lags exceed the {setting.inputs} input steps"
        features = num_monomials(setting.modes * (self.lags or 1), self.degree)
        return f"{features} features are too many for {setting.rows} steps"

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return candidates with different lags and penalties."""
        options = [k for k in LAGS[self.degree] if k <= setting.inputs and self._fits(setting, k)]
        return self.fill(lags=options, penalty=PENALTIES[self.degree])

    def _fits(self, setting: Setting, lags: int) -> bool:
        features = num_monomials(setting.modes * lags, self.degree)
        return lags <= setting.inputs and features <= min(MOST_FEATURES, setting.rows / 1.2)


class DmdConfig(ForecasterConfig):
    """Dynamic mode decomposition: linear map from one state to the next in the modes.

    Attributes:
        delays: whether a state is the vector of all input steps (Hankel-DMD).
        rank: number of singular vectors of the delay vectors; None is selected by validation.
    """

    title: ClassVar[str] = "DMD"
    in_title: ClassVar[tuple[str, ...]] = ("delays",)

    name: Literal["dmd"] = "dmd"
    delays: bool = False
    rank: PositiveInt | None = None

    @model_validator(mode="after")
    def _read(self) -> DmdConfig:
        if not self.delays:
            refuse_unused(self, "delays false", "rank")
        return self

    def build(self, setting: Setting) -> Delays:
        """Return the unfitted model."""
        steps = setting.inputs if self.delays else 1
        return Delays(Modes(setting), steps, self.rank or setting.modes)

    @classmethod
    def variants(cls) -> list[ForecasterConfig]:
        """Return the decompositions of states and of delay vectors."""
        return [cls(), cls(delays=True)]

    def titled(self) -> str:
        """Return the name in tables."""
        return f"Hankel-{self.title}" if self.delays else self.title

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return candidates with one and two singular vectors per mode."""
        if not self.delays:
            return [self]
        most = setting.modes * setting.inputs
        return self.fill(rank=sorted({min(setting.modes * k, most) for k in (1, 2)}))

"""Ordinary differential equations identified from the series, integrated by Runge-Kutta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from scitoolkit.core.config import refuse_unused
from scitoolkit.forecasting.forecasters.base import ForecasterConfig, Setting
from scitoolkit.forecasting.forecasters.frames import Frame, GridPoints, Modes
from scitoolkit.forecasting.forecasters.neighbours import neighbours, no_grid, num_neighbours
from scitoolkit.forecasting.forecasters.recursive import Recursive, lagged_rows
from scitoolkit.forecasting.forecasters.regression import RidgePath, monomials, num_monomials
from scitoolkit.forecasting.windows import Array

ADAMS_MOULTON = np.array([251, 646, -264, 106, -19]) / 720
CORRECTIONS = 4
MOST_FEATURES = 400
_MOST_ROWS = 50_000


class OdeDesign(NamedTuple):
    """Quantities independent of the penalty: design of integrated features, states, successors."""

    path: RidgePath
    rotated: Array
    now: Array
    after: Array


class IdentifiedODE(Recursive):
    """Polynomial ODE dx/dt = p(x), fitted in integral form and refined by its one-step error.

    The increment of a step is regressed on the Adams-Moulton integral of the features, which
    avoids derivatives of noisy data. The one-step error of the flow (RK4) is then regressed on the
    same design repeatedly, as long as it decreases.

    Args:
        frame: coordinates.
        degree: of the polynomial.
        penalty: of the ridge regression.
        substeps: Runge-Kutta steps per step of the series.
        shape: of the periodic grid, if `radius` is positive.
        radius: of the box of neighbours in one equation for all cells; 0 for one equation per
            coordinate that depends on all coordinates.
    """

    weights_: Array

    def __init__(
        self,
        frame: Frame,
        degree: int,
        penalty: float,
        substeps: int,
        shape: tuple[int, ...] = (),
        radius: int = 0,
    ) -> None:
        super().__init__(frame, 1, len(ADAMS_MOULTON) - 2)
        self.degree, self.penalty, self.substeps = degree, penalty, substeps
        self.shape, self.radius = shape, radius

    def key(self) -> tuple[Any, ...]:
        """Return the settings that `prepare` depends on: degree and radius."""
        return "ode", self.degree, self.radius

    def features(self, states: Array) -> Array:
        """Return the features (..., feature) of states, or (..., cell, feature) on a grid."""
        if self.radius:
            states = neighbours(states, self.shape, self.radius)
        return monomials(states, self.degree)

    def rate(self, states: Array) -> Array:
        """Return dx/dt per step of the series."""
        out = self.features(states) @ self.weights_
        return out[..., 0] if self.radius else out

    def flow(self, states: Array) -> Array:
        """Return the states after one step of the series, by the classical Runge-Kutta method."""
        h = 1.0 / self.substeps
        for _ in range(self.substeps):
            a = self.rate(states)
            b = self.rate(states + h / 2 * a)
            c = self.rate(states + h / 2 * b)
            d = self.rate(states + h * c)
            states = states + h / 6 * (a + 2 * b + 2 * c + d)
        return states

    def prepare(self, stretches: Sequence[Array]) -> OdeDesign:
        """Return the ridge path of the integrated features and the rotated increments."""
        lagged, after = lagged_rows(stretches, len(ADAMS_MOULTON) - 1, self.reach)
        stride = max(1, lagged.shape[0] * (lagged.shape[2] if self.radius else 1) // _MOST_ROWS)
        lagged, after = lagged[::stride], after[::stride]
        states = [after, *(lagged[:, k] for k in range(lagged.shape[1]))]
        design: Any = sum(
            weight * self.features(state)
            for weight, state in zip(ADAMS_MOULTON, states, strict=True)
        )
        design = design.reshape(-1, design.shape[-1])
        path, now = RidgePath(design), lagged[:, 0]
        return OdeDesign(path, path.rotate((after - now).reshape(len(design), -1)), now, after)

    def solve(self, prepared: OdeDesign) -> None:
        """Solve for the coefficients and refine them while the one-step error decreases."""
        path, rotated, now, after = prepared
        self.weights_ = path.solve(rotated, self.penalty)
        best, least = self.weights_, np.inf
        for _ in range(CORRECTIONS + 1):
            with np.errstate(over="ignore", invalid="ignore"):
                error = after - self.flow(now)
                size = float((error * error).mean())
            if not np.isfinite(size) or size > 0.999 * least:
                break
            best, least = self.weights_, size
            missing = path.rotate(error.reshape(len(path.design), -1))
            self.weights_ = self.weights_ + path.solve(missing, self.penalty)
        self.weights_ = best

    def advance(self, memory: list[Array]) -> list[Array]:
        """Return the memory after one step."""
        return [self.flow(memory[0])]

    def fitted(self) -> dict[str, np.ndarray]:
        """Return the coefficients, (feature, coordinate)."""
        return {"weights": self.weights_}

    def set_fitted(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the coefficients."""
        self.weights_ = arrays["weights"]


class OdeConfig(ForecasterConfig):
    """Polynomial differential equations, identified from the series.

    Attributes:
        neighbours: whether one equation in the neighbours holds for all cells of a periodic grid,
            instead of one equation for each mode.
        degree: of the polynomial.
        radius: of the box of neighbours; None is selected by validation.
        substeps: Runge-Kutta steps per step of the series; None for 2 with neighbours, else
            dependent on the number of modes.
        penalty: of the ridge regression; None is selected by validation.
    """

    title: ClassVar[str] = "identified differential equations"
    in_title: ClassVar[tuple[str, ...]] = ("neighbours",)

    name: Literal["identified_ode"] = "identified_ode"
    neighbours: bool = False
    degree: PositiveInt = 2
    radius: PositiveInt | None = None
    substeps: PositiveInt | None = None
    penalty: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _read(self) -> OdeConfig:
        if not self.neighbours:
            refuse_unused(self, "neighbours false", "radius")
        return self

    def build(self, setting: Setting) -> IdentifiedODE:
        """Return the unfitted model."""
        penalty = self.penalty or 1e-2
        if not self.neighbours:
            return IdentifiedODE(Modes(setting), self.degree, penalty, self.substeps or 4)
        assert setting.shape is not None
        substeps = self.substeps or 2
        return IdentifiedODE(
            GridPoints(), self.degree, penalty, substeps, setting.shape, self.radius or 1
        )

    @classmethod
    def variants(cls) -> list[ForecasterConfig]:
        """Return the equations of the modes and of the neighbours."""
        return [cls(), cls(neighbours=True)]

    def titled(self) -> str:
        """Return the name in tables."""
        return "identified equation of the neighbours" if self.neighbours else self.title

    def refuses(self, setting: Setting) -> str:
        """Return a reason if there are too many features, or cells have no neighbours."""
        if self.neighbours:
            if why := no_grid(setting):
                return why
            return "" if self._radii(setting) else "the box of neighbours has too many features"
        features = num_monomials(setting.modes, self.degree)
        if features > min(MOST_FEATURES, setting.rows / 1.2):
            return f"{features} features are too many for {setting.rows} steps"
        return ""

    def work(self, setting: Setting) -> float:
        """Return cells times features of the smallest box, for all Runge-Kutta stages."""
        if not self.neighbours:
            return 0.0
        assert setting.shape is not None
        features = num_monomials(num_neighbours(setting.shape, self.radius or 1), self.degree)
        return float(len(setting.weights) * features * 4 * (self.substeps or 2))

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return candidates with different penalties, and radii or substeps."""
        penalties = (1e-8, 1e-6, 1e-4, 1e-2)
        if self.neighbours:
            return self.fill(radius=self._radii(setting), substeps=[2], penalty=penalties)
        return self.fill(substeps=[4] if setting.modes <= 8 else [8], penalty=penalties)

    def _radii(self, setting: Setting) -> list[int]:
        assert setting.shape is not None
        options = [self.radius] if self.radius else [1, 2]
        near = {r: num_neighbours(setting.shape, r) for r in options}
        return [r for r in options if num_monomials(near[r], self.degree) <= MOST_FEATURES // 4]

"""Ordinary differential equations identified from the series, stepped by Runge-Kutta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt

from scitoolkit.forecasting.forecasters.base import ForecasterConfig, Setting
from scitoolkit.forecasting.forecasters.frames import Frame, Modes, Points
from scitoolkit.forecasting.forecasters.neighbours import neighbours, no_grid, num_neighbours
from scitoolkit.forecasting.forecasters.recursive import Recursive, lagged_rows
from scitoolkit.forecasting.forecasters.regression import RidgePath, monomials, num_monomials
from scitoolkit.forecasting.windows import Array

ADAMS_MOULTON = np.array([251, 646, -264, 106, -19]) / 720
CORRECTIONS = 4
MOST_FEATURES = 400
_MOST_ROWS = 50_000


class Prepared(NamedTuple):
    """What no penalty changes: design of the integrated features, states and their successors."""

    path: RidgePath
    rotated: Array
    now: Array
    after: Array


class IdentifiedODE(Recursive):
    """dx/dt as a polynomial of x, fitted in integral form, corrected by the error of its flow.

    The increment of a step is the Adams-Moulton integral of the features: no derivative of noisy
    data is taken. The flow of the equation (RK4) is compared with the data afterwards, and its
    error regressed on the same design, as long as that helps.

    Args:
        frame: the coordinates.
        degree: of the polynomial.
        penalty: of the ridge regression.
        substeps: Runge-Kutta steps per step of the series.
        shape: with `radius`, one equation of the neighbours for all points of a periodic grid.
        radius: of the box of neighbours; 0 for one equation of all coordinates.
    """

    weights_: Array

    def __init__(
        self, frame: Frame, degree: int, penalty: float, substeps: int,
        shape: tuple[int, ...] = (), radius: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(frame, 1, len(ADAMS_MOULTON) - 2)
        self.degree, self.penalty, self.substeps = degree, penalty, substeps
        self.shape, self.radius = shape, radius

    def key(self) -> tuple[Any, ...]:
        """Return degree and radius."""
        return "ode", self.degree, self.radius

    def features(self, states: Array) -> Array:
        """Return (..., feature), or (..., cell, feature) on a grid."""
        if self.radius:
            states = neighbours(states, self.shape, self.radius)
        return monomials(states, self.degree)

    def rate(self, states: Array) -> Array:
        """Return dx/dt per step of the series."""
        out = self.features(states) @ self.weights_
        return out[..., 0] if self.radius else out

    def flow(self, states: Array) -> Array:
        """Return the states one step on, by classical Runge-Kutta."""
        h = 1.0 / self.substeps
        for _ in range(self.substeps):
            a = self.rate(states)
            b = self.rate(states + h / 2 * a)
            c = self.rate(states + h / 2 * b)
            d = self.rate(states + h * c)
            states = states + h / 6 * (a + 2 * b + 2 * c + d)
        return states

    def prepare(self, stretches: Sequence[Array]) -> Prepared:
        """Return the design of integrated features, and the increments rotated into it."""
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
        return Prepared(path, path.rotate((after - now).reshape(len(design), -1)), now, after)

    def solve(self, prepared: Prepared) -> None:
        """Set the coefficients, and correct them while the one-step error falls."""
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
        """Return the memory one step on."""
        return [self.flow(memory[0])]

    def fitted(self) -> dict[str, np.ndarray]:
        """Return the coefficients (feature, coordinate)."""
        return {"weights": self.weights_}

    def set_fitted(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set the coefficients."""
        self.weights_ = arrays["weights"]


class OdeConfig(ForecasterConfig):
    """Polynomial differential equations of the modes, identified from the series.

    Attributes:
        degree: of the polynomial.
        substeps: Runge-Kutta steps per step of the series; None chooses by validation.
        penalty: of the ridge regression; None likewise.
    """

    title: ClassVar[str] = "identified differential equations"

    name: Literal["identified_ode"] = "identified_ode"
    degree: PositiveInt = 2
    substeps: PositiveInt | None = None
    penalty: float | None = Field(default=None, gt=0)

    def build(self, setting: Setting) -> IdentifiedODE:
        """Return the model."""
        return IdentifiedODE(Modes(setting), self.degree, self.penalty or 1e-2, self.substeps or 4)

    def refuses(self, setting: Setting) -> str:
        """Return that there are too many features for this number of steps."""
        features = num_monomials(setting.modes, self.degree)
        if features > min(MOST_FEATURES, setting.rows / 1.2):
            return f"{features} features are too many for {setting.rows} steps"
        return ""

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return substeps and penalties; many modes are stiff."""
        substeps = [4] if setting.modes <= 8 else [8]
        return self.fill(substeps=substeps, penalty=(1e-8, 1e-6, 1e-4, 1e-2))


class GridOdeConfig(ForecasterConfig):
    """One differential equation of the neighbours for all points of a periodic grid.

    Attributes:
        degree: of the polynomial.
        radius: of the box of neighbours; None for the one that validation chooses.
        substeps: Runge-Kutta steps per step of the series.
        penalty: of the ridge regression; None likewise.
    """

    title: ClassVar[str] = "identified equation of the neighbours"

    name: Literal["identified_stencil_ode"] = "identified_stencil_ode"
    degree: PositiveInt = 2
    radius: PositiveInt | None = None
    substeps: PositiveInt = 2
    penalty: float | None = Field(default=None, gt=0)

    def build(self, setting: Setting) -> IdentifiedODE:
        """Return the model."""
        assert setting.shape is not None
        return IdentifiedODE(
            Points(), self.degree, self.penalty or 1e-2, self.substeps, setting.shape,
            self.radius or 1,
        )  # fmt: skip

    def refuses(self, setting: Setting) -> str:
        """Return that points have no neighbours, or that the box has too many features."""
        if why := no_grid(setting):
            return why
        return "" if self._radii(setting) else "the box of neighbours has too many features"

    def work(self, setting: Setting) -> float:
        """Return points times features of the smallest box, for all Runge-Kutta stages."""
        assert setting.shape is not None
        features = num_monomials(num_neighbours(setting.shape, self.radius or 1), self.degree)
        return float(len(setting.weights) * features * 4 * self.substeps)

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return radii and penalties."""
        return self.fill(radius=self._radii(setting), penalty=(1e-8, 1e-6, 1e-4, 1e-2))

    def _radii(self, setting: Setting) -> list[int]:
        assert setting.shape is not None
        options = [self.radius] if self.radius else [1, 2]
        near = {r: num_neighbours(setting.shape, r) for r in options}
        return [r for r in options if num_monomials(near[r], self.degree) <= MOST_FEATURES // 4]

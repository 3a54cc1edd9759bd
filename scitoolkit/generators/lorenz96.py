"""Generator of the chaotic Lorenz-96 model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from scitoolkit.core.errors import NumericalError
from scitoolkit.core.results import Figure, Maps, Panel
from scitoolkit.generators.base import Sample
from scitoolkit.generators.stepped import SteppedGenerator

if TYPE_CHECKING:
    import numpy as np

    from scitoolkit.generators.resolution import Advanced


class Lorenz96(SteppedGenerator):
    """Lorenz-96 model u(time, x) on a ring, by the classical Runge-Kutta method.

    Attributes:
        forcing: constant; chaotic above about 5 with 40 points.
        points: number of points on the ring.
        time_step: of the scheme, and between frames.
        spinup: steps before the first frame.
        frames: number of frames.
        amplitude: standard deviation of the random initial state about u = forcing.
    """

    name: Literal["lorenz96"] = "lorenz96"
    space: ClassVar[int] = 0
    chaotic: ClassVar[bool] = True
    parameters: ClassVar[Mapping[str, str]] = {"forcing": "1"}
    equations: ClassVar[str] = "du_i/dt = (u_(i+1) - u_(i-2)) u_(i-1) - u_i + forcing, periodic"
    scheme: ClassVar[str] = "classical Runge-Kutta of fourth order, stored in single precision"
    reference: ClassVar[str] = (
        "Lorenz 1996, Predictability - a problem partly solved, ECMWF seminar on predictability"
    )

    forcing: Annotated[PositiveFloat, Field(le=100)] = 8.0
    points: Annotated[int, Field(ge=4)] = 40
    time_step: PositiveFloat = 0.05
    spinup: NonNegativeInt = 500
    frames: PositiveInt = 700
    amplitude: PositiveFloat = 0.01

    def generate(self, seed: int) -> Sample:
        """Return u(time, x) after the spin-up; no quantity is conserved."""
        import numpy as np
        import xarray as xr

        u = self._start(seed)
        rows = []
        with np.errstate(over="ignore", invalid="ignore"):
            for number in range(self.spinup + self.frames):
                if number >= self.spinup:
                    rows.append(u)
                u = self._step(u, self.time_step)
        if not np.isfinite(rows).all():
            raise NumericalError(
                "the solution is not finite",
                where=f"generator {self.name}",
                fix=f"time_step={self.time_step / 4:g}",
            )
        units = {"units": "1"}
        frames = xr.Dataset(
            {
                "u": (
                    ("time", "x"),
                    np.array(rows, dtype=np.float32),
                    {**units, "long_name": "Lorenz-96 variable"},
                )
            },
            {
                "time": ("time", self.time_step * np.arange(self.frames), units),
                "x": ("x", np.arange(self.points), units),
            },
        )
        return Sample(frames, {})

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return the space-time map."""
        del frames
        return [Maps(title="Lorenz-96, first sample", panels=[Panel(variable="u", label="u")])]

    def states(self, sample: Sample, seed: int) -> np.ndarray:
        """Return the initial state and the frames, (1 + frames, 1, points)."""
        import numpy as np

        frames: Any = sample.frames
        return np.vstack([self._start(seed), frames["u"].values])[:, None]

    def num_steps(self) -> int:
        """Return the number of time steps from the start to the last frame."""
        return self.spinup + self.frames

    def comparison(self, grid: float = 1.0, parts: int = 2) -> Advanced:
        """Return a function that advances a state by these steps and by smaller ones."""
        del grid

        def advanced(
            state: np.ndarray, counts: Sequence[int]
        ) -> list[tuple[np.ndarray, np.ndarray]]:
            own = fine = state[0].astype(float)
            made = []
            for before, count in zip([0, *counts], counts, strict=False):
                for _ in range(count - before):
                    own = self._step(own, self.time_step)
                    for _ in range(parts):
                        fine = self._step(fine, self.time_step / parts)
                made.append((own[None], fine[None]))
            return made

        return advanced

    def _start(self, seed: int) -> np.ndarray:
        import numpy as np

        noise = np.random.default_rng(seed).standard_normal(self.points)
        return self.forcing + self.amplitude * noise

    def _rate(self, u: np.ndarray) -> np.ndarray:
        import numpy as np

        # np.roll(u, -1)[i] is u[i + 1], on a ring.
        return (np.roll(u, -1) - np.roll(u, 2)) * np.roll(u, 1) - u + self.forcing

    def _step(self, u: np.ndarray, h: float) -> np.ndarray:
        a = self._rate(u)
        b = self._rate(u + h / 2 * a)
        c = self._rate(u + h / 2 * b)
        return u + h / 6 * (a + 2 * b + 2 * c + self._rate(u + h * c))

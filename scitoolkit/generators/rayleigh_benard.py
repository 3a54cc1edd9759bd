"""Generator of two-dimensional Rayleigh-Bénard convection."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from scitoolkit.core.errors import NumericalError
from scitoolkit.core.results import Figure, Lines, Maps, Panel, Series
from scitoolkit.generators.base import Sample
from scitoolkit.generators.stepped import GRID, SteppedGenerator

if TYPE_CHECKING:
    import numpy as np

    from scitoolkit.generators.convection_solver import Convection, State
    from scitoolkit.generators.resolution import Advanced

START = 8
"""Steps of the first order in a step of the finest scheme, with which parts of a run start."""


class RayleighBenard(SteppedGenerator):
    """Rayleigh-Bénard convection p, b, u, w (time, x, z) between no-slip walls.

    Free-fall units: the height of the layer is 1, the buoyancy 1/2 at the lower wall and -1/2 at
    the upper wall.

    Attributes:
        rayleigh: Rayleigh number.
        prandtl: Prandtl number.
        length: period of x.
        cells: number of points of x.
        levels: number of Chebyshev-Gauss points of z.
        time_step: of the scheme; unstable if the flow crosses a cell in a shorter time.
        interval: time between frames.
        spinup: time before the first frame; the transient at Ra 1e6 lasts about 30.
        frames: number of frames.
    """

    name: Literal["rayleigh_benard"] = "rayleigh_benard"
    space: ClassVar[int] = 2
    chaotic: ClassVar[bool] = True
    parameters: ClassVar[Mapping[str, str]] = {"rayleigh": "1", "prandtl": "1"}
    equations: ClassVar[str] = "Boussinesq equations between plates at fixed temperatures, no slip"
    scheme: ClassVar[str] = "stream function, Fourier (2/3 rule) x Chebyshev collocation, SBDF2"
    reference: ClassVar[str] = "Chandrasekhar 1961, Hydrodynamic and Hydromagnetic Stability"

    rayleigh: Annotated[PositiveFloat, Field(le=1e8)] = 1e6
    prandtl: Annotated[PositiveFloat, Field(ge=0.01, le=100)] = 1.0
    length: PositiveFloat = 4.0
    cells: Annotated[int, Field(ge=16, multiple_of=2)] = 128
    levels: Annotated[int, Field(ge=12)] = 48
    time_step: PositiveFloat = 0.00625
    interval: PositiveFloat = 0.25
    spinup: NonNegativeFloat = 35.0
    frames: PositiveInt = 100

    def generate(self, seed: int) -> Sample:
        """Return the frames, and the mass flux through horizontal planes as invariant."""
        import numpy as np

        flow = self._flow(1, 1)
        flow.start_at_rest(seed)
        flow.advance(self.spinup)
        rows = []
        for _ in range(self.frames):
            with np.errstate(over="ignore", invalid="ignore"):
                rows.append(flow.frame(self.cells, self.levels))
            flow.advance(self.interval)
        frames = {n: np.stack([r[n] for r in rows]) for n in "pbuw"}
        if not all(np.isfinite(v).all() for v in frames.values()):
            raise NumericalError(
                "the solution is not finite",
                where=f"generator {self.name}",
                fix=f"time_step={self.time_step / 2:g}, or more cells and levels",
            )
        w = frames["w"]
        flux = float(np.abs(w.mean(1)).max() / np.sqrt(np.mean(w**2)))
        return Sample(self._dataset(flow, frames), {"flux": flux})

    def states(self, sample: Sample, seed: int) -> np.ndarray:
        """Return b, u and w of the frames.

        The start at rest has no flow whose error would mean anything.
        """
        import numpy as np

        del seed
        frames: Any = sample.frames
        return np.stack([frames[n].values.astype(float) for n in "buw"], 1)

    def num_steps(self) -> int:
        """Return the number of time steps from the start to the last frame."""
        return max(1, round((self.spinup + self.frames * self.interval) / self.time_step))

    def comparison(self, grid: float = GRID, parts: int = 2) -> Advanced:
        """Return a function that advances b, u and w by this scheme and by a finer one.

        Both schemes need a state before the first; small steps of the first order lead to them.
        """
        import numpy as np

        from scitoolkit.generators.convection_solver import evaluation_matrix, gauss_points

        own, fine = self._flow(1, 1), self._flow(grid, parts)
        short = self._flow(1, START * parts)
        to_nodes = evaluation_matrix(gauss_points(self.levels), own.z).T

        def advanced(
            state: np.ndarray, counts: Sequence[int]
        ) -> list[tuple[np.ndarray, np.ndarray]]:
            b, u, w = state @ to_nodes
            short.start(b, w, u.mean(0))
            early, made = [], []
            for _ in range(parts):
                early.append(short.state())
                for _ in range(START):
                    short.first_step()
            # Both begin at the time of one own step, each with the state one step of its scheme
            # before.
            own.restart(early[0], short.state())
            fine.restart(*(_refined(s, own, fine) for s in (early[-1], short.state())))
            for before, count in zip([0, *counts], counts, strict=False):
                for _ in range(count - before):
                    own.step()
                    for _ in range(parts):
                        fine.step()
                frames = (flow.frame(self.cells, self.levels) for flow in (own, fine))
                first, second = (np.stack([frame[n] for n in "buw"]) for frame in frames)
                made.append((first, second))
            return made

        return advanced

    def resolution(self) -> str:
        """Return the numbers of cells and levels and the time step in words."""
        return f"{self.cells} cells, {self.levels} levels, {super().resolution()}"

    def _flow(self, grid: float, parts: int) -> Convection:
        """Return a flow with more cells and levels and parts of the time step."""
        from scitoolkit.generators.convection_solver import Convection

        return Convection(
            2 * math.ceil(self.cells * grid / 2),
            math.ceil(self.levels * grid),
            self.rayleigh,
            self.prandtl,
            self.length,
            self.time_step / parts,
        )

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return the bound of the mean of w over horizontal planes, which is zero by continuity."""
        return {"flux": 1e-10}

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return figures of the buoyancy and the heat flux."""
        flux = (frames["w"] * frames["b"]).mean(("x", "z"))
        return [
            Maps(
                title="Buoyancy, first frame",
                panels=[Panel(variable="b", label="b", select={"time": 0}, diverging=True)],
            ),
            Lines(
                title="Convective heat flux",
                x=frames["time"].values.tolist(),
                x_label="time",
                y_label="mean of w b",
                series=[Series(label="w b", y=flux.values.tolist())],
            ),
        ]

    def _dataset(self, flow: Convection, frames: Mapping[str, np.ndarray]) -> Any:
        import numpy as np
        import xarray as xr

        from scitoolkit.generators.convection_solver import gauss_points

        units = {"units": "1"}
        return xr.Dataset(
            {n: (("time", "x", "z"), v.astype("float32"), units) for n, v in frames.items()},
            {
                "time": ("time", self.spinup + self.interval * np.arange(self.frames), units),
                "x": ("x", self.length * np.arange(self.cells) / self.cells, units),
                "z": ("z", gauss_points(self.levels), units),
            },
            {"viscosity": flow.viscosity, "diffusivity": flow.diffusivity},
        )


def _refined(state: State, flow: Convection, finer: Convection) -> State:
    """Return a state on a finer grid, interpolated by its waves and polynomials."""
    import numpy as np

    from scitoolkit.generators.convection_solver import evaluation_matrix

    matrix = evaluation_matrix(flow.z, finer.z).T
    b, psi, mean = (part @ matrix for part in state)
    more = ((0, finer.modes - flow.modes), (0, 0))
    return np.pad(b, more), np.pad(psi, more), mean

"""Generator of spatiotemporal chaos of the Kuramoto-Sivashinsky equation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.results import Figure, Lines, Maps, Panel, Series
from scitoolkit.generators.base import Generator, Sample
from scitoolkit.generators.stepped import SpectralGenerator

if TYPE_CHECKING:
    import numpy as np

    from scitoolkit.generators.etdrk4 import Step


DAMPED = 2.0
"""Wavenumber from which on waves are strongly damped: k^2 - k^4 is -12."""
TAIL = 1e-2
"""Largest spectrum of the smallest scales over its maximum; the damped range ends below 3e-3."""


class KuramotoSivashinsky(SpectralGenerator):
    """Kuramoto-Sivashinsky chaos u(time, x) with period `length`.

    Attributes:
        length: period of x.
        cells: number of points; the upper third of the wavenumbers is truncated.
        time_step: of the scheme.
        interval: number of steps between frames.
        spinup: number of frames that are discarded at the start.
        frames: number of frames.
        amplitude: of the random initial state, which consists of the eight longest waves.
    """

    name: Literal["kuramoto_sivashinsky"] = "kuramoto_sivashinsky"
    chaotic: ClassVar[bool] = True
    parameters: ClassVar[Mapping[str, str]] = {"length": "1"}
    equations: ClassVar[str] = "u_t + u u_x + u_xx + u_xxxx = 0 on [0, length), periodic"
    scheme: ClassVar[str] = "Fourier pseudo-spectral (2/3 rule), ETDRK4"
    reference: ClassVar[str] = "Kassam and Trefethen 2005, SIAM J. Sci. Comput. 26(4), 1214"

    length: Annotated[PositiveFloat, Field(le=1e4)] = 22.0
    time_step: PositiveFloat = 0.05
    interval: PositiveInt = 20
    spinup: NonNegativeInt = 100
    frames: PositiveInt = 100
    amplitude: PositiveFloat = 1.0

    def with_parameters(self, values: Mapping[str, float]) -> Generator:
        """Return this generator with another length, if the grid damps its shortest waves.

        Raises:
            ConfigError: an invalid value, or energy would pile up in the shortest waves.
        """
        made = super().with_parameters(values)
        assert isinstance(made, KuramotoSivashinsky)
        largest = 2 * math.pi / made.length * ((made.cells - 1) // 3)
        if largest < DAMPED:
            least = 3 * math.ceil(DAMPED * made.length / (2 * math.pi)) + 1
            raise ConfigError(
                f"length {made.length:g} with {made.cells} cells resolves wavenumbers up to "
                f"{largest:.2g}, but waves are damped only from {DAMPED:g} on",
                where=f"generator {self.name}",
                fix=f"cells={least + least % 2}",
            )
        return made

    def generate(self, seed: int) -> Sample:
        """Return u(time, x) after the spin-up, and the drift of its mean."""
        import numpy as np

        from scitoolkit.generators.resolution import tail, unresolved

        frames = self.points(self.evolved(seed))
        scale = float(np.sqrt(np.mean(frames**2)))
        drift = float(np.abs(frames.mean(1)).max()) / scale
        share = tail(frames, 1, (self.cells - 1) // 3)
        missed = unresolved(share, TAIL, f"cells={2 * self.cells}")
        return Sample(self._dataset(frames), {"mean": drift}, missed=missed)

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return the bound of the mean, which the scheme conserves to rounding."""
        return {"mean": 1e-10}

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return figures of u(time, x) and of its energy."""
        energy = (frames["u"] ** 2).mean("x") / 2
        return [
            Maps(
                title="Kuramoto-Sivashinsky, first sample",
                panels=[Panel(variable="u", label="u", diverging=True)],
            ),
            Lines(
                title="Energy",
                x=frames["time"].values.tolist(),
                x_label="time",
                y_label="mean of u²/2",
                series=[Series(label="u", y=energy.values.tolist())],
            ),
        ]

    def start(self, seed: int) -> np.ndarray:
        """Return the spectrum of a sum of the eight longest waves."""
        import numpy as np

        rng = np.random.default_rng(seed)
        waves = np.arange(1, 9)
        x = self.length * np.arange(self.cells) / self.cells
        weights, phases = rng.standard_normal(8), rng.uniform(0, 2 * np.pi, 8)
        angles = 2 * np.pi * waves[:, None] * x / self.length + phases[:, None]
        u = self.amplitude * (weights[:, None] * np.cos(angles)).sum(0) / np.sqrt(waves.size)
        return np.fft.rfft(u)

    def stepper(self) -> Step:
        """Return a function that advances a spectrum by one time step."""
        return _step(self.length, self.cells, self.time_step)

    def _dataset(self, frames: np.ndarray) -> Any:
        import numpy as np
        import xarray as xr

        seconds = self.time_step * self.interval * np.arange(len(frames))
        x = self.length * np.arange(self.cells) / self.cells
        units = {"units": "1"}
        return xr.Dataset(
            {"u": (("time", "x"), frames, units)},
            {"time": ("time", seconds, units), "x": ("x", x, units)},
        )


def _step(length: float, cells: int, dt: float) -> Step:
    """Return a function that advances the spectrum by one ETDRK4 step."""
    import numpy as np

    from scitoolkit.generators.etdrk4 import etdrk4

    k = 2 * np.pi / length * np.arange(cells // 2 + 1)
    linear = k**2 - k**4
    resolved = np.arange(k.size) <= (cells - 1) // 3  # 2/3 rule; a third itself would be aliased
    nonlinear = np.where(resolved, -0.5j * k, 0)

    def advection(v: np.ndarray) -> np.ndarray:
        return nonlinear * np.fft.rfft(np.fft.irfft(v, cells) ** 2)

    return etdrk4(linear, dt, advection)

"""Generator of two-dimensional decaying turbulence in a periodic box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat

from scitoolkit.core.results import Figure, Lines, Maps, Panel, Series
from scitoolkit.generators.base import Sample
from scitoolkit.generators.stepped import SpectralGenerator

if TYPE_CHECKING:
    import numpy as np

    from scitoolkit.generators.etdrk4 import Step

TAIL = 0.1
"""Largest spectrum of the vorticity at the smallest scales over its maximum."""


class DecayingTurbulence(SpectralGenerator):
    """Decaying turbulence u, v, vorticity (time, x, y) with period 2 pi.

    vorticity_t + u vorticity_x + v vorticity_y = nu lap vorticity, u_x + v_y = 0. The energy,
    initially 1/2, decays at the rate 2 nu times the enstrophy.

    Attributes:
        viscosity: nu.
        cells: number of points along each dim; the upper third of the wavenumbers is truncated.
        peak: scale of the initial energy spectrum k^6 exp(-4 (k / peak)^2), which is largest at the
            wavenumber 0.87 peak.
        time_step: of the scheme.
        interval: number of steps between frames.
        spinup: number of frames that are discarded at the start.
        frames: number of frames.
    """

    name: Literal["decaying_turbulence"] = "decaying_turbulence"
    space: ClassVar[int] = 2
    chaotic: ClassVar[bool] = True
    unknowns: ClassVar[tuple[str, ...]] = ("vorticity",)
    parameters: ClassVar[Mapping[str, str]] = {"viscosity": "1"}
    equations: ClassVar[str] = "vorticity_t + u . grad vorticity = nu lap vorticity, div u = 0"
    scheme: ClassVar[str] = "Fourier pseudo-spectral (2/3 rule), ETDRK4"
    reference: ClassVar[str] = "McWilliams 1984, J. Fluid Mech. 146, 21"

    viscosity: Annotated[float, Field(gt=0, le=0.1)] = 5e-3
    cells: Annotated[int, Field(ge=16, multiple_of=2)] = 128
    peak: PositiveFloat = 6.0
    time_step: PositiveFloat = 5e-3

    def generate(self, seed: int) -> Sample:
        """Return the frames, and the mean vorticity as invariant."""
        import numpy as np

        from scitoolkit.generators.resolution import tail, unresolved

        spectra = self.evolved(seed)
        frames = {n: np.stack([self.velocity(s)[n] for s in spectra]) for n in ("u", "v")}
        frames["vorticity"] = self.points(spectra)
        mean = np.abs(frames["vorticity"].mean((1, 2))).max()
        size = np.sqrt(np.mean(frames["vorticity"] ** 2))
        share = tail(frames["vorticity"], 2, (self.cells - 1) // 3)
        missed = unresolved(share, TAIL, f"cells={2 * self.cells} or a larger viscosity")
        return Sample(self._dataset(frames), {"circulation": float(mean / size)}, missed=missed)

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return the bound of the mean over the rms vorticity, which is zero in a periodic box."""
        return {"circulation": 1e-10}

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return figures of the vorticity and of the decay of the energy."""
        energy = 0.5 * (frames["u"] ** 2 + frames["v"] ** 2).mean(("x", "y"))
        return [
            Maps(
                title="Vorticity, first frame",
                panels=[
                    Panel(
                        variable="vorticity", label="vorticity", select={"time": 0}, diverging=True
                    )
                ],
            ),
            Lines(
                title="Kinetic energy",
                x=frames["time"].values.tolist(),
                x_label="time",
                y_label="energy",
                series=[Series(label="energy", y=energy.values.tolist())],
            ),
        ]

    def start(self, seed: int) -> np.ndarray:
        """Return the spectrum (kx, ky) of a random vorticity of energy 1/2."""
        import numpy as np

        noise = np.random.default_rng(seed).standard_normal((self.cells, self.cells))
        _kx, _ky, square, resolved = self._waves()
        k = np.sqrt(square)
        shape = k**4 * np.exp(-2 * (k / self.peak) ** 2) / np.sqrt(np.maximum(k, 1))
        spectrum = np.fft.rfft2(noise) * resolved * shape
        velocity = self.velocity(spectrum)
        energy = 0.5 * np.mean(velocity["u"] ** 2 + velocity["v"] ** 2)
        return spectrum * np.sqrt(0.5 / energy)

    def velocity(self, vorticity: np.ndarray) -> dict[str, np.ndarray]:
        """Return the velocity components, (x, y) each, of a vorticity spectrum (kx, ky)."""
        import numpy as np

        kx, ky, square, _ = self._waves()
        # lap psi = -omega, u = psi_y, v = -psi_x.
        stream = np.where(square > 0, vorticity / np.maximum(square, 1), 0)
        size = (self.cells, self.cells)
        return {
            "u": np.fft.irfft2(1j * ky * stream, s=size),
            "v": np.fft.irfft2(-1j * kx * stream, s=size),
        }

    def stepper(self) -> Step:
        """Return a function that advances the vorticity spectrum (kx, ky) by one step."""
        import numpy as np

        from scitoolkit.generators.etdrk4 import etdrk4

        kx, ky, square, resolved = self._waves()

        def advection(vorticity: np.ndarray) -> np.ndarray:
            velocity = self.velocity(vorticity)
            points = np.fft.irfft2(vorticity, s=(self.cells, self.cells))
            fluxes = (np.fft.rfft2(velocity[n] * points) for n in ("u", "v"))
            return -1 * resolved * (1j * kx * next(fluxes) + 1j * ky * next(fluxes))

        return etdrk4(-self.viscosity * square, self.time_step, advection)

    def _waves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return kx, ky, k^2, and the mask of the wavenumbers that are not truncated."""
        import numpy as np

        kx = np.fft.fftfreq(self.cells, 1 / self.cells)[:, None]
        ky = np.arange(self.cells // 2 + 1)[None]
        # Below a third: a sum of two wavenumbers of exactly a third would alias onto a third.
        largest = (self.cells - 1) // 3
        resolved = (np.abs(kx) <= largest) & (ky <= largest)
        return kx, ky, kx**2 + ky**2, resolved

    def _dataset(self, frames: Mapping[str, np.ndarray]) -> Any:
        import numpy as np
        import xarray as xr

        units = {"units": "1"}
        points = 2 * np.pi * np.arange(self.cells) / self.cells
        times = (
            self.time_step
            * self.interval
            * np.arange(self.spinup + 1, self.spinup + 1 + self.frames)
        )
        return xr.Dataset(
            {n: (("time", "x", "y"), v.astype("float32"), units) for n, v in frames.items()},
            {
                "time": ("time", times, units),
                **{d: (d, points, {**units, "period": 2 * np.pi}) for d in "xy"},
            },
        )

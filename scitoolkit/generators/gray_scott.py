"""Generator of patterns of the Gray-Scott reaction-diffusion equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from scitoolkit.core.results import Figure, Lines, Maps, Panel, Series
from scitoolkit.generators.base import Sample
from scitoolkit.generators.stepped import SpectralGenerator

if TYPE_CHECKING:
    import numpy as np

    from scitoolkit.generators.etdrk4 import Step

TAIL = 1e-2
"""Largest spectrum of species b at the smallest scales over its maximum."""
DEAD = 1e-3
"""Largest b of a pattern that has died out; patterns reach 0.3."""


class GrayScott(SpectralGenerator):
    """Gray-Scott patterns a, b (time, x, y) in a periodic box.

    a_t = Da lap a - a b^2 + F (1 - a), b_t = Db lap b + a b^2 - (F + k) b.

    Attributes:
        feed: F.
        kill: k.
        length: period along each dim.
        cells: number of points along each dim.
        diffusivity_a: Da.
        diffusivity_b: Db.
        time_step: of the scheme.
        interval: number of steps between frames.
        spinup: number of frames that are discarded at the start; patterns take some thousand steps.
        frames: number of frames.
        spots: number of spots at random positions in the initial state.
    """

    name: Literal["gray_scott"] = "gray_scott"
    space: ClassVar[int] = 2
    chaotic: ClassVar[bool] = False
    unknowns: ClassVar[tuple[str, ...]] = ("a", "b")
    parameters: ClassVar[Mapping[str, str]] = {"feed": "1", "kill": "1"}
    equations: ClassVar[str] = (
        "a_t = Da lap a - a b^2 + F (1 - a), b_t = Db lap b + a b^2 - (F+k) b"
    )
    scheme: ClassVar[str] = "Fourier pseudo-spectral, ETDRK4"
    reference: ClassVar[str] = "Pearson 1993, Science 261, 189"

    feed: Annotated[float, Field(gt=0, le=0.2)] = 0.04
    kill: Annotated[float, Field(gt=0, le=0.2)] = 0.06
    length: PositiveFloat = 1.25
    cells: Annotated[int, Field(ge=16, multiple_of=2)] = 128
    diffusivity_a: PositiveFloat = 2e-5
    diffusivity_b: PositiveFloat = 1e-5
    time_step: PositiveFloat = 2.0
    interval: PositiveInt = 10
    spinup: NonNegativeInt = 25
    spots: PositiveInt = 8

    def generate(self, seed: int) -> Sample:
        """Return the frames; there are no invariants."""
        from scitoolkit.generators.resolution import tail, unresolved

        frames = self.points(self.evolved(seed))
        start = self.points(self.start(seed))[1]
        share = max(tail(b, 2, self.cells // 2 - 1) for b in (start, frames[:, 1]))
        missed = unresolved(share, TAIL, f"cells={2 * self.cells}")
        dead = frames[-1, 1].max() < DEAD
        notes = ["no pattern: species b has died out, only a = 1 remains"] if dead else []
        return Sample(self._dataset(frames), {}, notes, missed)

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return figures of the pattern and of its mean."""
        mean = frames["b"].mean(("x", "y"))
        return [
            Maps(
                title="Species b, first frame",
                panels=[Panel(variable="b", label="b", select={"time": 0})],
            ),
            Lines(
                title="Mean of b",
                x=frames["time"].values.tolist(),
                x_label="time",
                y_label="mean of b",
                series=[Series(label="b", y=mean.values.tolist())],
            ),
        ]

    def start(self, seed: int) -> np.ndarray:
        """Return the spectra (2, kx, ky) of a = 1, b = 0, with Gaussian spots of b."""
        import numpy as np

        generator = np.random.default_rng(seed)
        x = self.length * np.arange(self.cells) / self.cells
        spots = np.zeros((self.cells, self.cells))
        for centre in generator.uniform(0, self.length, (self.spots, 2)):
            near = [np.abs(x - c) for c in centre]
            near = [np.minimum(d, self.length - d) for d in near]
            spots += np.exp(-(near[0][:, None] ** 2 + near[1] ** 2) / (2 * 0.04**2))
        spots = np.minimum(spots, 1)
        return self.waves(np.stack([1 - 0.5 * spots, 0.25 * spots]))

    def largest(self) -> int:
        """Return the largest wavenumber that is below that of the grid."""
        return self.cells // 2 - 1

    def stepper(self) -> Step:
        """Return a function that advances the spectra (2, kx, ky) by one step."""
        import numpy as np

        from scitoolkit.generators.etdrk4 import etdrk4

        n = self.cells
        kx = 2 * np.pi * np.fft.fftfreq(n, self.length / n)
        ky = 2 * np.pi * np.fft.rfftfreq(n, self.length / n)
        square = kx[:, None] ** 2 + ky**2
        rates = (self.feed, self.feed + self.kill)
        spread = (self.diffusivity_a, self.diffusivity_b)
        linear = np.stack([-d * square - r for d, r in zip(spread, rates, strict=True)])
        source = np.zeros_like(linear)
        # The constant F is the mean, wave 0, of an FFT that is not divided by the n^2 points.
        source[0, 0, 0] = self.feed * n * n

        def reaction(v: np.ndarray) -> np.ndarray:
            a, b = np.fft.irfft2(v, s=(n, n))
            rate = np.fft.rfft2(a * b * b)
            return np.stack([-rate, rate]) + source

        return etdrk4(linear, self.time_step, reaction)

    def _dataset(self, frames: np.ndarray) -> Any:
        import numpy as np
        import xarray as xr

        units = {"units": "1"}
        points = self.length * np.arange(self.cells) / self.cells
        seconds = self.time_step * self.interval * np.arange(len(frames))
        return xr.Dataset(
            {
                n: (("time", "x", "y"), frames[:, i].astype("float32"), units)
                for i, n in enumerate("ab")
            },
            {"time": ("time", seconds, units), **{d: (d, points, units) for d in "xy"}},
        )

"""Base classes of generators that advance fields by time steps, and know the error of their steps.

States are stored frames, so that steps of a finer scheme can start from any of them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from scitoolkit.core.errors import NumericalError
from scitoolkit.generators.base import Accuracy, Generator, Sample

if TYPE_CHECKING:
    import numpy as np

    from scitoolkit.generators.etdrk4 import Step
    from scitoolkit.generators.resolution import Advanced

GRID = 1.5
"""Cells along each dim of the grid that a sample is compared with, over those of the sample."""


class SteppedGenerator(Generator):
    """Base class of generators whose error is that of parts of the run on a finer grid.

    Attributes:
        space: number of dims of space that a finer grid refines.
        chaotic: whether errors grow until they are as large as the fields; the error is then that
            of ten times the time in which the fields change by their own size.
    """

    space: ClassVar[int] = 1
    chaotic: ClassVar[bool]

    @abstractmethod
    def states(self, sample: Sample, seed: int) -> np.ndarray:
        """Return the state at the start and at the frames, (1 + frames, variables, points...)."""

    @abstractmethod
    def num_steps(self) -> int:
        """Return the number of time steps from the start to the last frame."""

    @abstractmethod
    def comparison(self, grid: float = GRID, parts: int = 2) -> Advanced:
        """Return a function that advances a state by this scheme and by a finer one.

        Its arguments are a state (variables, points...) and ascending numbers of time steps of this
        scheme. It returns for each number a pair of states at the points of this scheme: that of
        this scheme, and the waves it resolves of that of the finer one at the same time.

        Args:
            grid: cells of the finer scheme along each dim over those of this one.
            parts: of a time step, which are the steps of the finer scheme.
        """

    def resolution(self) -> str:
        """Return the sample's resolution in words."""
        return f"time step {self.model_dump()['time_step']:g}"

    def accuracy(self, sample: Sample, seed: int) -> Accuracy:
        """Return the error of the run from a run of parts of it with a finer scheme."""
        from scitoolkit.generators.resolution import PARTS, TURNOVERS, added_error

        error = added_error(
            self.states(sample, seed),
            self.comparison(),
            self.num_steps(),
            2 * GRID**self.space,
            chaotic=self.chaotic,
        )
        finer = f"{GRID:g} times the cells and half the time step" if self.space else "half of it"
        over = f"{TURNOVERS} turnover times" if self.chaotic else "the run"
        method = f"fields over {over} ({self.resolution()}) against {finer} in {PARTS} parts"
        return Accuracy(error, self.tolerance, method)


class SpectralGenerator(SteppedGenerator):
    """Base class of pseudo-spectral solvers of fields, advanced by ETDRK4.

    Attributes:
        cells: number of points along each dim.
        time_step: of the scheme.
        interval: number of steps between frames.
        spinup: number of frames that are discarded at the start.
        frames: number of frames.
        unknowns: variables of the frames that are the state.
    """

    unknowns: ClassVar[tuple[str, ...]] = ("u",)

    cells: Annotated[int, Field(ge=16, multiple_of=2)] = 64
    time_step: PositiveFloat
    interval: PositiveInt = 20
    spinup: NonNegativeInt = 10
    frames: PositiveInt = 50

    @abstractmethod
    def start(self, seed: int) -> np.ndarray:
        """Return the spectrum of the initial state, (variables, waves...) or (waves...)."""

    @abstractmethod
    def stepper(self) -> Step:
        """Return a function that advances a spectrum by one time step."""

    def evolved(self, seed: int) -> np.ndarray:
        """Return the spectra of the frames.

        Raises:
            NumericalError: they are not finite.
        """
        import numpy as np

        from scitoolkit.generators.etdrk4 import frames_of

        spectra = frames_of(
            self.stepper(),
            self.start(seed),
            lambda v: v,
            spinup=self.spinup,
            frames=self.frames,
            interval=self.interval,
        )
        if not np.isfinite(spectra).all():
            raise NumericalError(
                "the solution is not finite",
                where=f"generator {self.name}",
                fix=f"time_step={self.time_step / 4:g}",
            )
        return spectra

    def sizes(self) -> tuple[int, ...]:
        """Return the number of points of spectra along each dim."""
        return (self.cells,) * self.space

    def points(self, spectra: np.ndarray) -> np.ndarray:
        """Return values at the points of the grid, (..., points) for spectra (..., waves)."""
        import numpy as np

        axes = range(-self.space, 0)
        return np.asarray(np.fft.irfftn(spectra, self.sizes(), axes))

    def waves(self, values: np.ndarray) -> np.ndarray:
        """Return spectra, the inverse of `points`."""
        import numpy as np

        return np.fft.rfftn(values, axes=range(-self.space, 0))

    def finer(self, grid: float, parts: int) -> SpectralGenerator:
        """Return this generator with more cells and parts of its time steps."""
        return self.model_copy(
            update={
                "cells": 2 * math.ceil(self.cells * grid / 2),
                "time_step": self.time_step / parts,
                "interval": self.interval * parts,
            }
        )

    def states(self, sample: Sample, seed: int) -> np.ndarray:
        """Return the initial state and the frames."""
        import numpy as np

        frames: Any = sample.frames
        values = np.stack([frames[n].values.astype(float) for n in self.unknowns], 1)
        return np.concatenate([self.points(self.start(seed)).reshape(1, *values.shape[1:]), values])

    def num_steps(self) -> int:
        """Return the number of time steps from the start to the last frame."""
        return (self.spinup + self.frames) * self.interval

    def comparison(self, grid: float = GRID, parts: int = 2) -> Advanced:
        """Return a function that advances a state by this scheme and by a finer one."""
        finer = self.finer(grid, parts)
        step, small = self.stepper(), finer.stepper()

        def advanced(
            state: np.ndarray, counts: Sequence[int]
        ) -> list[tuple[np.ndarray, np.ndarray]]:
            own = self.waves(state[0] if len(self.unknowns) == 1 else state)
            fine, made = self._moved(own, finer), []
            for before, count in zip([0, *counts], counts, strict=False):
                for _ in range(count - before):
                    own = step(own)
                    for _ in range(parts):
                        fine = small(fine)
                both = (self._resolved(s) for s in (own, finer._moved(fine, self)))
                first, second = (self.points(spectra).reshape(state.shape) for spectra in both)
                made.append((first, second))
            return made

        return advanced

    def resolution(self) -> str:
        """Return the number of cells and the time step in words."""
        return f"{self.cells} cells along each dim, {super().resolution()}"

    def largest(self) -> int:
        """Return the largest wavenumber along a dim, in waves per box, that is resolved."""
        return (self.cells - 1) // 3

    def _wavenumbers(self, axis: int) -> np.ndarray:
        """Return the wavenumbers of spectra along an axis, -1 for the last."""
        import numpy as np

        size = self.sizes()[axis]
        if axis == -1:
            return np.arange(size // 2 + 1)
        return np.fft.fftfreq(size, 1 / size).astype(int)

    def _moved(self, spectra: np.ndarray, other: SpectralGenerator) -> np.ndarray:
        """Return spectra on the grid of another generator, without waves that either lacks."""
        import numpy as np

        sizes, theirs = self.sizes(), other.sizes()
        for axis in range(-self.space, 0):
            shared = min(sizes[axis], theirs[axis]) // 2 - 1  # the last wave has no sign
            own, waves = self._wavenumbers(axis), other._wavenumbers(axis)
            place = np.flatnonzero(np.abs(waves) <= shared)
            size = list(spectra.shape)
            size[axis] = waves.size
            moved = np.moveaxis(np.zeros(size, spectra.dtype), axis, 0)
            # Negative wavenumbers are at the end of the axis: their place is the wavenumber modulo
            # its size.
            moved[place] = np.moveaxis(spectra, axis, 0)[waves[place] % own.size]
            spectra = np.moveaxis(moved, 0, axis)
        # An FFT that is not divided grows with the number of points.
        return spectra * (math.prod(theirs) / math.prod(sizes))

    def _resolved(self, spectra: np.ndarray) -> np.ndarray:
        """Return spectra without the waves that this scheme truncates."""
        import numpy as np

        for axis in range(-self.space, 0):
            shape = [1] * self.space
            shape[axis] = -1
            waves = np.abs(self._wavenumbers(axis)) * (self.cells / self.sizes()[axis])
            spectra = spectra * (waves <= self.largest()).reshape(shape)
        return spectra

"""Boxes with walls as periodic boxes of twice the length: the method of images.

A field that is zero at the walls continues behind them as an odd function, one without a slope as
an even one, and both have period twice the distance of the walls. If the equations map fields of
these symmetries to rates of the same ones, the periodic solution is that between the walls, with
the accuracy of a spectral method (Boyd 2001, Chebyshev and Fourier Spectral Methods, chapter 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class MirroredBox:
    """Points of a box, periodic or between walls along each dim, and of its images.

    Attributes:
        cells: along each dim of the box itself.
        length: of the box along each dim.
        walled: whether walls end the box, for each dim. The box has then points on both walls,
            which are `cells + 1`.

    Example:
        >>> box = MirroredBox(4, 1.0, (True,))
        >>> box.sizes, box.points()[0].tolist()
        ((8,), [0.0, 0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25])
    """

    cells: int
    length: float
    walled: tuple[bool, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of points along each dim, images included."""
        return tuple((1 + wall) * self.cells for wall in self.walled)

    def waves(self) -> list[np.ndarray]:
        """Return the wavenumbers along each dim, of shapes that broadcast to a spectrum's."""
        made, last = [], len(self.walled) - 1
        for axis, (size, wall) in enumerate(zip(self.sizes, self.walled, strict=True)):
            counts = np.arange(size // 2 + 1) if axis == last else np.fft.fftfreq(size, 1 / size)
            made.append(self._along(axis, 2 * np.pi / (self.length * (1 + wall)) * counts))
        return made

    def points(self) -> list[np.ndarray]:
        """Return the coordinates along each dim, of shapes that broadcast; of images the box's."""
        made = []
        for axis, size in enumerate(self.sizes):
            number = np.arange(size)
            if self.walled[axis]:
                number = np.minimum(number, size - number)
            made.append(self._along(axis, self.length * number / self.cells))
        return made

    def inside(self, values: np.ndarray) -> np.ndarray:
        """Return values (..., points) without those of the images."""
        for axis in self._walls():
            values = np.take(values, np.arange(self.cells + 1), axis)
        return values

    def extended(self, values: np.ndarray, signs: np.ndarray) -> np.ndarray:
        """Return values with those of the images.

        Args:
            values: (fields, points...) of the box.
            signs: (fields, dims), -1 for a field that is zero at the walls of a dim, 1 for one
                without a slope.
        """
        for axis in self._walls():
            sign = self._of_fields(signs[:, axis])
            if (sign < 0).any():
                ends = self._along(axis, np.isin(np.arange(self.cells + 1), (0, self.cells)))
                values = np.where((sign < 0) & ends, 0.0, values)
            images = np.take(values, np.arange(self.cells - 1, 0, -1), axis)
            values = np.concatenate([values, sign * images], axis)
        return values

    def symmetric(self, spectra: np.ndarray, signs: np.ndarray) -> np.ndarray:
        """Return the part of spectra (fields, waves...) with the symmetries of the walls."""
        for axis in self._walls():
            image = _reversed(spectra, axis)
            if axis == -1:  # of which only half is stored: f(-k) of a real field is conj f(k)
                image = spectra
                for other in range(-len(self.walled), -1):
                    image = _reversed(image, other)
                image = image.conj()
            spectra = (spectra + self._of_fields(signs[:, axis]) * image) / 2
        return spectra

    def _walls(self) -> list[int]:
        """Return the axes with walls, from the end."""
        count = len(self.walled)
        return [axis - count for axis in range(count) if self.walled[axis]]

    def _along(self, axis: int, values: np.ndarray) -> np.ndarray:
        shape = [1] * len(self.walled)
        shape[axis] = -1
        return values.reshape(shape)

    def _of_fields(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(-1, *[1] * len(self.walled))


def _reversed(spectra: np.ndarray, axis: int) -> np.ndarray:
    """Return f(-k) along an axis of all wavenumbers."""
    return np.roll(np.flip(spectra, axis), 1, axis)


def multiples(walled: Sequence[bool]) -> list[int]:
    """Return the half waves per box of the first wave along each dim: 1 between walls, else 2."""
    return [1 if wall else 2 for wall in walled]

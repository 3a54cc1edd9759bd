"""Spectral bases of grid dims (Fourier, Chebyshev or cosine) as small real matrices.

Guards are products with such matrices, so that they are differentiated, exported and compiled like
any other layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name

_EVEN = 1e-3


@dataclass(frozen=True)
class Axis:
    """A grid dim with the spectral basis of its points and boundary.

    Attributes:
        dim: its name.
        points: coordinates, ascending.
        basis: `fourier` (even, periodic), `chebyshev` (Chebyshev-Gauss points between walls) or
            `cosine` (even cells between walls).
        low: coordinate of the first boundary.
        length: period, or distance between the walls.
    """

    dim: str
    points: np.ndarray
    basis: Literal["fourier", "chebyshev", "cosine"]
    low: float
    length: float

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.points)

    @property
    def relative(self) -> np.ndarray:
        """Points mapped to -1 ... 1 between the boundaries."""
        return 2 * (self.points - self.low) / self.length - 1

    def transform(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the orthonormal matrix (mode, point) and each mode number relative to the highest.

        Example:
            >>> axis = read_axis("x", np.arange(4.0), periodic=True)
            >>> matrix, share = axis.transform()
            >>> bool(np.allclose(matrix @ matrix.T, np.eye(4))), share.tolist()
            (True, [0.0, 0.5, 0.5, 1.0])
        """
        n = self.size
        if self.basis != "fourier":
            # Cosines at the middles of n equal angles are orthogonal. Cells between walls are such
            # angles in space, and Chebyshev-Gauss points are their cosines: one matrix for both.
            k = np.arange(n)
            matrix = np.sqrt(2 / n) * np.cos(np.pi / n * np.outer(k, np.arange(n) + 0.5))
            matrix[0] /= np.sqrt(2)
            return matrix, k / n
        # Row 0 is the mean, rows 2 m - 1 and 2 m the cosine and sine of wave m.
        k = (np.arange(n) + 1) // 2
        angle = 2 * np.pi / n * np.outer(k, np.arange(n))
        matrix = np.where(np.arange(n)[:, None] % 2 == 1, np.cos(angle), np.sin(angle))
        matrix[0] = 1 / np.sqrt(2)
        matrix *= np.sqrt(2 / n)
        if n % 2 == 0:  # the highest wave alternates; its sine is zero at all points
            matrix[-1] /= np.sqrt(2)
        return matrix, k / (n / 2)


def read_axis(dim: str, points: np.ndarray, *, periodic: bool) -> Axis:
    """Return a dim with the basis of its points.

    Raises:
        ConfigError: no basis for these points.

    Example:
        >>> z = -0.5 * np.cos(np.pi * (np.arange(8) + 0.5) / 8)
        >>> axis = read_axis("z", z, periodic=False)
        >>> axis.basis, round(axis.low, 6), round(axis.length, 6)
        ('chebyshev', -0.5, 1.0)
    """
    points, n = np.asarray(points, dtype=np.float64), len(points)
    steps = np.diff(points)
    if n < 4 or not (steps > 0).all():
        raise ConfigError(
            f"{n} points along {dim!r}, not ascending or too few for a guard",
            allowed="4 or more ascending points",
        )
    if np.ptp(steps) <= _EVEN * steps.mean():
        step = float(steps.mean())
        low = points[0] if periodic else points[0] - step / 2
        return Axis(dim, points, "fourier" if periodic else "cosine", float(low), n * step)
    # The outermost of n Chebyshev-Gauss points are cos(pi / 2n) of half the distance of the walls
    # from the middle, which gives the walls from the points.
    length = (points[-1] - points[0]) / np.cos(np.pi / (2 * n))
    middle = 0.5 * (points[0] + points[-1])
    gauss = middle - 0.5 * length * np.cos(np.pi * (np.arange(n) + 0.5) / n)
    if periodic or np.abs(gauss - points).max() > _EVEN * length:
        raise ConfigError(
            f"the points along {dim!r} are not even{' on a periodic dim' if periodic else ''}",
            where="guards",
            allowed="even points, or Chebyshev-Gauss points between walls",
            fix="interpolate the data to such a grid, or use guards without a basis (value_range)",
        )
    return Axis(dim, gauss, "chebyshev", float(middle - 0.5 * length), float(length))


@dataclass(frozen=True)
class Grid:
    """The dims of an emulator's fields.

    Attributes:
        sizes: {dim: number of points}, in the order of the fields' dims.
        coordinates: {dim: coordinates}; the cell number for dims without.
        periodic: periodic dims.
        weights: cell volumes, (*grid), mean 1.
    """

    sizes: Mapping[str, int]
    coordinates: Mapping[str, Sequence[float]]
    periodic: Sequence[str]
    weights: np.ndarray

    def axis(self, dim: str) -> Axis:
        """Return one dim with its basis.

        Raises:
            ConfigError: an unknown dim, or no basis for its points.
        """
        points = np.asarray(self.coordinates.get(self._known(dim), np.arange(self.sizes[dim])))
        return read_axis(dim, points, periodic=dim in self.periodic)

    def position(self, dim: str) -> int:
        """Return the index of a dim in a batch (B, *grid).

        Raises:
            ConfigError: an unknown dim.
        """
        return 1 + list(self.sizes).index(self._known(dim))

    def _known(self, dim: str) -> str:
        if dim not in self.sizes:
            raise ConfigError(
                f"{dim!r} is not a dim of the grid",
                where="guards",
                allowed=", ".join(self.sizes),
                fix=nearest_name(dim, list(self.sizes)) or "",
            )
        return dim

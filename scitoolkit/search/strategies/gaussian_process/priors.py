"""Expected best values of parameters, as factors of the acquisition function.

The density of an ordered variable is 3/4 of a normal one around the expected entry and 1/4 of a
uniform one, both relative to their largest value; an expected category has the density 1, others
1/4. A wrong expectation therefore costs a factor of at most 4 per variable, and, because the
exponent falls with the number of trials, nothing in the end.

Source:
    Hvarfner et al. 2022, arXiv:2204.11051, eq. 6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from scitoolkit.search.parameters import Categorical
from scitoolkit.search.strategies.gaussian_process.embedding import Array, Embedding

_UNIFORM = 0.25
_STRENGTH = 10.0


class Priors:
    """Expected entries of rows.

    Args:
        embedding: of the space.

    Attributes:
        at: indices of the variables with an expected value.
    """

    def __init__(self, embedding: Embedding) -> None:
        self.axes = embedding.axes
        kinds = list(embedding.space.variables.values())
        self.at = [j for j, kind in enumerate(kinds) if kind.prior is not None and kind.levels > 1]
        self.centres = {j: self.axes[j].entry(kinds[j].code(kinds[j].prior)) for j in self.at}
        # None marks a list of values, in which only the expected one counts.
        self.spreads = {
            j: None if isinstance(kind := kinds[j], Categorical) else kind.spread for j in self.at
        }

    def start(self, uniform: Array) -> Array:
        """Return points (M, V) of the unit cube, moved towards the expected values.

        The first point has them; every fourth one stays where it is.
        """
        out = uniform.copy()
        moved = np.arange(len(uniform)) % 4 != 3
        for j in self.at:
            centre, spread, u = self.centres[j], self.spreads[j], uniform[:, j]
            if spread is None:
                place = self._place(j)
                out[:, j] = np.where(moved, np.where(u < 0.5, place, 2 * u - 1), u)
            else:
                place = centre
                low, high = ndtr(-centre / spread), ndtr((1 - centre) / spread)
                normal = centre + spread * ndtri(low + u * (high - low))
                out[:, j] = np.where(moved, np.clip(normal, 0.0, 1.0), u)
            out[0, j] = place
        return out

    def _place(self, j: int) -> float:
        """Return a number in 0 ... 1 that is lifted to the expected value of a list."""
        axis = self.axes[j]
        grid = np.linspace(0, 1, 4 * int(1 / max(axis.step, 1e-3)) + 400)
        return float(grid[np.argmin(np.abs(axis.lift(grid) - self.centres[j]))])

    def log_density(self, rows: Array) -> Array:
        """Return the logarithm of the density (M,) of rows (M, V)."""
        total = np.zeros(len(rows))
        for j in self.at:
            total += np.where(np.isnan(rows[:, j]), 0.0, np.log(self._density(j, rows[:, j])))
        return total

    def slopes(self, entries: Array, at: NDArray[Any]) -> Array:
        """Return the derivatives (K,) of the logarithm by the entries (K,) of ordered variables.

        Args:
            entries: of the variables `at`.
            at: (K,) indices of active ordered variables.
        """
        out = np.zeros(len(at))
        for k, j in enumerate(at.tolist()):
            spread = self.spreads.get(j)
            if spread is not None:
                z = (entries[k] - self.centres[j]) / spread
                normal = (1 - _UNIFORM) * np.exp(-0.5 * z * z)
                out[k] = -z / spread * normal / (normal + _UNIFORM)
        return out

    def _density(self, j: int, entries: Array) -> Array:
        spread = self.spreads[j]
        if spread is None:
            return np.where(np.isclose(entries, self.centres[j]), 1.0, _UNIFORM)
        z = (entries - self.centres[j]) / spread
        return (1 - _UNIFORM) * np.exp(-0.5 * z * z) + _UNIFORM


def exponent(observed: int) -> float:
    """Return the exponent of the density after a number of trials."""
    return _STRENGTH / max(observed, 1)

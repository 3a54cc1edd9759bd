"""Density matrices from levels and columns of submatrices: base class of the methods.

A method computes the levels, with the weights of the groups' columns in each; chemical potential,
gap and the refusal of metals are common to all methods.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from scitoolkit.core.errors import NumericalError
from scitoolkit.generators.submatrix.pattern import Cut

BISECTIONS = 200
SLACK = 1e-4
METAL = 1e-2  # smallest ratio of gap to width that is not an artefact of finite submatrices


@dataclass(frozen=True)
class DensityMatrix:
    """A density matrix with its error estimate.

    Attributes:
        matrix: D, occupations 0 to 1, on the pattern.
        mu: chemical potential.
        energy: trace of D H.
        electrons: trace of D.
        gap: width of the interval of chemical potentials with the right number of electrons, at the
            resolution of the levels.
        error: estimated largest error of D on the pattern of H: its deviation from idempotency.
    """

    matrix: sp.csr_array
    mu: float
    energy: float
    electrons: float
    gap: float
    error: float


class Levels:
    """Density of states: levels and their weights.

    Args:
        values: of the levels, in any order.
        weights: of the levels; their sum is the number of states.
    """

    def __init__(self, values: np.ndarray, weights: np.ndarray) -> None:
        order = np.argsort(values, kind="stable")
        self.values: np.ndarray = values[order]
        self.weights: np.ndarray = weights[order]
        self._below = np.concatenate([[0.0], np.cumsum(self.weights)])

    @property
    def width(self) -> float:
        """Difference of the highest and the lowest level."""
        return float(self.values[-1] - self.values[0])

    def count(self, mu: float, temperature: float = 0.0) -> float:
        """Return the number of electrons at a chemical potential.

        Example:
            >>> Levels(np.array([1.0, -1.0]), np.array([2.0, 3.0])).count(0.0)
            3.0
        """
        if temperature > 0:
            return float(self.weights @ occupations(self.values, mu, temperature))
        left, right = (np.searchsorted(self.values, mu, side) for side in ("left", "right"))
        return float(self._below[left] + self._below[right]) / 2

    def bisect(self, electrons: float, temperature: float = 0.0) -> float:
        """Return a chemical potential at which the count reaches this number of electrons."""
        low, high = float(self.values[0]) - 1.0, float(self.values[-1]) + 1.0
        if temperature > 0:  # the tails of a Fermi function extend beyond the levels
            low, high = low - 60 * temperature, high + 60 * temperature
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            if self.count(middle, temperature) < electrons:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    def plateau(self, electrons: float) -> tuple[float, float]:
        """Return the interval of chemical potentials with this number of electrons within SLACK."""
        slack = max(0.1, SLACK * electrons)
        return self.bisect(electrons - slack), self.bisect(electrons + slack)


class DensityMethod(ABC):
    """Base class of methods for density matrices by submatrices.

    Args:
        cut: the matrix, its groups and their rows.
    """

    def __init__(self, cut: Cut) -> None:
        self.cut: Cut = cut

    @property
    def matrix(self) -> sp.csr_array:
        """The matrix H."""
        return self.cut.matrix

    @property
    def sizes(self) -> np.ndarray:
        """Number of rows of each submatrix."""
        return np.array([rows.size for rows in self.cut.rows])

    @abstractmethod
    def levels(self, electrons: float, temperature: float = 0.0) -> Levels:
        """Return levels that resolve the chemical potential of this number of electrons."""

    @abstractmethod
    def _occupied(self, electrons: float, mu: float, temperature: float) -> sp.csr_array:
        """Return D at a chemical potential."""

    def chemical_potential(self, electrons: float, temperature: float = 0.0) -> float:
        """Return the chemical potential of this number of electrons, by bisection.

        At temperature 0 it is the centre of the interval in which the count is right to a tenth of
        an electron or 1e-4 of all electrons.

        Raises:
            NumericalError: there are more electrons than states.
        """
        if not 0 <= electrons <= self.matrix.shape[0]:
            raise NumericalError(
                f"{electrons:g} electrons", allowed=f"0 to {self.matrix.shape[0]} (one a state)"
            )
        levels = self.levels(electrons, temperature)
        if temperature > 0:
            return levels.bisect(electrons, temperature)
        bottom, top = levels.plateau(electrons)
        return (bottom + top) / 2

    def gap(self, electrons: float) -> float:
        """Return the width of the interval of chemical potentials with this number of electrons."""
        bottom, top = self.levels(electrons).plateau(electrons)
        return top - bottom

    def density(self, electrons: float, temperature: float = 0.0) -> DensityMatrix:
        """Return the density matrix of this number of electrons.

        Args:
            electrons: trace of D; half of the electrons without spin polarisation.
            temperature: of the Fermi function, in the unit of H; 0 for a step function.

        Raises:
            NumericalError: there is no gap at temperature 0, so that the matrix does not decay.
        """
        mu = self.chemical_potential(electrons, temperature)
        levels = self.levels(electrons, temperature)
        bottom, top = levels.plateau(electrons)
        gap = top - bottom
        smallest = METAL * levels.width
        if temperature == 0 and gap < smallest:
            raise NumericalError(
                f"gap {gap:.2g} at mu = {mu:.4g}: the density matrix of a metal decays slowly",
                allowed=f"a gap above {smallest:.2g}",
                fix=f"a temperature, such as {max(smallest, 5 * gap):.2g}",
            )
        d = self._occupied(electrons, mu, temperature)
        # D = P + e with a projector P: D² - D = P e + e P - e to first order, which halves the
        # part of e that mixes occupied and empty states evenly.
        error = 2 * self.cut.idempotency(d) if temperature == 0 else math.nan
        energy = float((d * self.matrix).sum())
        return DensityMatrix(d, mu, energy, float(d.diagonal().sum()), gap, error)


def occupations(values: np.ndarray, mu: float, temperature: float = 0.0) -> np.ndarray:
    """Return Fermi occupations of energies; a step at temperature 0.

    Example:
        >>> occupations(np.array([-1.0, 0.0, 1.0]), 0.0).tolist()
        [1.0, 0.5, 0.0]
    """
    if temperature == 0:
        return (values < mu) + 0.5 * (values == mu)
    from scipy.special import expit

    return expit((mu - values) / temperature)

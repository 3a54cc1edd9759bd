"""Roots of the dispersion relation of Maxwellian beams: exact damping and growth rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_ITERATIONS = 60
RESIDUAL = 1e-10
COLD, STEPS = 0.02, 16


@dataclass(frozen=True)
class Beam:
    """Maxwellian beam.

    Attributes:
        strength: density x charge² / mass, the square of its plasma frequency.
        drift: mean velocity.
        thermal: thermal speed.
    """

    strength: float
    drift: float
    thermal: float


def relation(omega: np.ndarray | complex, k: float, beams: Sequence[Beam]) -> np.ndarray:
    """Return the dielectric function 1 - sum_b strength_b Z'(zeta_b) / (2 k² thermal_b²).

    Source: Fried and Conte 1961, The Plasma Dispersion Function; Z by the Faddeeva function.
    """
    from scipy.special import wofz

    total = np.ones_like(np.asarray(omega, complex))
    for beam in beams:
        zeta = (np.asarray(omega, complex) / k - beam.drift) / (np.sqrt(2) * beam.thermal)
        # Z(zeta) = i sqrt(pi) w(zeta), and Z' = -2 (1 + zeta Z).
        z = 1j * np.sqrt(np.pi) * wofz(zeta)
        total = total + beam.strength * (1 + zeta * z) / (k * beam.thermal) ** 2
    return total


def root(k: float, beams: Sequence[Beam], guess: complex) -> complex:
    """Return the root near a guess, by the secant method.

    Example:
        >>> omega = root(0.5, [Beam(1.0, 0.0, 1.0)], 1.4 - 0.15j)
        >>> round(omega.real, 6), round(omega.imag, 6)
        (1.415662, -0.153359)
    """
    return complex(_roots(k, beams, np.array([guess]))[0])


def _roots(k: float, beams: Sequence[Beam], guesses: np.ndarray) -> np.ndarray:
    """Return what the secant method reaches from each guess (n,); NaN where it diverges."""
    a, b = guesses, guesses * (1 + 1e-4) + 1e-4j
    fa, fb = relation(a, k, beams), relation(b, k, beams)
    for _ in range(MOST_ITERATIONS):
        moving = (fb != fa) & ~(np.abs(fb) < 1e-15)
        if not moving.any():
            break
        slope = np.where(moving, fb - fa, 1.0)
        a, b, fa = b, np.where(moving, b - fb * (b - a) / slope, b), np.where(moving, fb, fa)
        fb = relation(b, k, beams)
    return b


def least_damped(k: float, beams: Sequence[Beam], *, oscillating: bool = False) -> complex:
    """Return the root with the largest growth rate, of the non-negative frequencies.

    Args:
        k: wave number.
        beams: the plasma.
        oscillating: exclude roots of zero frequency.

    Raises:
        ValueError: no root was found.

    Example:
        >>> omega = least_damped(0.2, [Beam(0.5, 3.0, 1.0), Beam(0.5, -3.0, 1.0)])
        >>> round(omega.imag, 5)
        0.28451
    """
    total = np.sqrt(sum(beam.strength for beam in beams))
    fastest = max(abs(beam.drift) + beam.thermal for beam in beams)
    # The relation has infinitely many roots. Guesses cover the frequencies up to plasma
    # oscillations in the fastest beam; those with the smallest value of the relation are followed.
    real = np.linspace(0, 1.5 * total + 2.5 * k * fastest, 25)
    imag = np.linspace(-0.8, 0.8, 17) * total
    guesses = (real[:, None] + 1j * imag).ravel()
    with np.errstate(all="ignore"):
        sizes = np.abs(relation(guesses, k, beams))
        # All at once: one by one they take about eight times as long.
        candidates = _roots(k, beams, guesses[np.argsort(sizes)[:60]])
        exact = np.abs(relation(candidates, k, beams)) < RESIDUAL
        forward = candidates.real > (1e-3 * total if oscillating else -1e-6 * total)
        roots = [complex(w) for w in candidates[np.isfinite(candidates) & exact & forward]]
    if not roots:
        raise ValueError(f"no root of the dispersion relation at k = {k:g}")
    return max(roots, key=lambda w: w.imag)


def ion_acoustic(k: float, mass_ratio: float, ion_temperature: float) -> complex:
    """Return the root of the ion-acoustic wave of electrons and singly charged ions.

    The root is followed in small steps from cold ions, where it is close to that of fluid theory.

    Args:
        k: wavenumber times Debye length.
        mass_ratio: of ions to electrons.
        ion_temperature: relative to the electrons, at least 0.01 because of rounding errors.

    Raises:
        ValueError: the root was lost.

    Example:
        >>> omega = ion_acoustic(0.5, 25.0, 0.2)
        >>> round(omega.real, 5), round(omega.imag, 5)
        (0.12935, -0.02286)
    """
    cold = min(ion_temperature, COLD)
    # Fluid theory: omega^2 = k^2 (1 / (1 + k^2) + 3 T_i) / M, in units of the electrons.
    omega = complex(k * np.sqrt((1 / (1 + k**2) + 3 * cold) / mass_ratio))
    for temperature in np.geomspace(cold, ion_temperature, STEPS):
        ions = Beam(1 / mass_ratio, 0.0, float(np.sqrt(temperature / mass_ratio)))
        beams = [Beam(1.0, 0.0, 1.0), ions]
        omega = root(k, beams, omega)
        if not abs(complex(relation(omega, k, beams))) < RESIDUAL:
            raise ValueError(f"no ion-acoustic root at k = {k:g}")
    return omega

"""Growth and damping rates of waves from time series of the field energy."""

from __future__ import annotations

import math

import numpy as np

from scitoolkit.core.errors import DataError

SMALL, LARGE = 1e-7, 1e-4
"""Range of the energy, relative to its maximum, in which an instability grows linearly."""
TRANSIENT = 0.15
NOISE = 1e-20


EVER = (0.0, math.inf)


def window(
    t: np.ndarray, energy: np.ndarray, growing: bool, between: tuple[float, float] = EVER
) -> np.ndarray:
    """Return the indices at which a rate is measured.

    Args:
        t: times, (steps,).
        energy: of the field, (steps,).
        growing: whether to select the range between SMALL and LARGE of the first maximum; otherwise
            the peaks of a damped wave after the transient and above the noise.
        between: interval of times from which peaks of a damped wave are taken.

    Raises:
        DataError: the series is too short.
    """
    if growing:
        share = energy / energy.max()
        top = int(np.argmax(share > LARGE))
        below = np.flatnonzero(share[:top] < SMALL)
        first = int(below[-1]) + 1 if below.size else 0
        chosen = np.arange(first, top)
    else:
        inner = energy[1:-1]
        peaks = np.flatnonzero((inner > energy[:-2]) & (inner >= energy[2:])) + 1
        begin, end = max(between[0], TRANSIENT * t[-1]), between[1]
        loud = energy[peaks] > NOISE * energy.max()
        chosen = peaks[(t[peaks] > begin) & (t[peaks] < end) & loud]
    if chosen.size < 3:
        raise DataError("too few points to measure a rate", fix="a longer duration")
    return chosen


def growth_rate(t: np.ndarray, energy: np.ndarray) -> float:
    """Return the growth rate of an instability, half the slope of the log of the field energy.

    Example:
        >>> t = np.linspace(0, 40, 2001)
        >>> wave = np.exp(2 * 0.3 * t) / (1 + np.exp(2 * 0.3 * (t - 35)))
        >>> round(growth_rate(t, wave), 3)
        0.3
    """
    chosen = window(t, energy, True)
    return float(np.polyfit(t[chosen], np.log(energy[chosen]), 1)[0]) / 2


def damping_rate(
    t: np.ndarray, energy: np.ndarray, between: tuple[float, float] = EVER
) -> tuple[float, float]:
    """Return (frequency, growth rate) of a damped standing wave, from the peaks of its energy.

    Peaks are located between the time steps by parabolas through the logarithm of the energy.

    Example:
        >>> t = np.linspace(0, 30, 3001)
        >>> frequency, rate = damping_rate(t, np.exp(-0.2 * t) * np.cos(1.4 * t) ** 2)
        >>> round(frequency, 4), round(rate, 5)
        (1.4, -0.1)
    """
    peaks = window(t, energy, False, between)
    logs = np.log(energy)
    low, mid, high = logs[peaks - 1], logs[peaks], logs[peaks + 1]
    # Vertex of the parabola through three points at -1, 0, 1.
    shift = 0.5 * (low - high) / (low - 2 * mid + high)
    places = t[peaks] + shift * (t[peaks + 1] - t[peaks])
    heights = mid - 0.25 * (low - high) * shift
    # The energy is exp(2 gamma t) cos^2(omega t): its logarithm falls at twice the rate, and its
    # peaks are pi / omega apart.
    rate = float(np.polyfit(places, heights, 1)[0]) / 2
    return float(np.pi / np.diff(places).mean()), rate

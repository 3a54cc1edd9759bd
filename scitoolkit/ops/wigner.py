"""Real Wigner 3j symbols (coupling constants of three irreps of SO(3)) from closed formulas.

Racah's sum is computed with integers and rounded once, and each constant in the real basis derives
from a single one in the complex basis. Constants are therefore accurate to a few ulp, zeros are
exact, and values do not depend on the machine, so that generated kernels are identical everywhere.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from scitoolkit.core.errors import ConfigError


@functools.cache
def wigner_3j(l1: int, l2: int, l3: int) -> np.ndarray:
    """Return the tensor C of unit norm that is invariant under rotations of its three axes.

    Components are m = -l..l of the real spherical harmonics with y as the polar axis. Basis and
    sign are those of `e3nn.o3.wigner_3j` from version 0.5 on; e3nn 0.4 has the opposite sign for
    some triples of odd sum, such as (2, 1, 2).

    Args:
        l1, l2, l3: degrees.

    Returns:
        Shape (2 l1 + 1, 2 l2 + 1, 2 l3 + 1), float64, of unit norm, read-only.

    Raises:
        ConfigError: degrees that do not couple.

    Source: Varshalovich et al. 1988, section 8.2.1; real basis of Blanco et al. 1997.

    Example:
        >>> wigner_3j(1, 1, 0)[:, :, 0].round(3)
        array([[0.577, 0.   , 0.   ],
               [0.   , 0.577, 0.   ],
               [0.   , 0.   , 0.577]])
    """
    if not abs(l1 - l2) <= l3 <= l1 + l2:
        raise ConfigError(f"degrees {(l1, l2, l3)} do not couple", allowed="|l1-l2| <= l3 <= l1+l2")
    constants = np.zeros((2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1))
    phase = (-1j) ** (l1 + l2 - l3)  # (-i)^l times harmonics of degree l: constants are real
    for m1 in range(-l1, l1 + 1):
        for m2 in range(max(-l2, -l3 - m1), min(l2, l3 - m1) + 1):
            value = phase * _complex_3j(l1, l2, l3, m1, m2)
            for a, left in _in_real_basis(m1):
                for b, right in _in_real_basis(m2):
                    for c, out in _in_real_basis(m1 + m2):
                        term = value * (left * right * out.conjugate())
                        constants[l1 + a, l2 + b, l3 + c] += term.real
    constants.setflags(write=False)  # the cached array is shared
    return constants


def _complex_3j(l1: int, l2: int, l3: int, m1: int, m2: int) -> float:
    """Return the Clebsch-Gordan coefficient <l1 m1 l2 m2 | l3 m1+m2> over sqrt(2 l3 + 1)."""
    m3 = m1 + m2
    free1, free2, free3 = l1 + l2 - l3, l1 - l2 + l3, l2 + l3 - l1
    racah = sum(
        (-1) ** k
        * math.comb(free1, k)
        * math.comb(free2, l1 - m1 - k)
        * math.comb(free3, l2 + m2 - k)
        for k in range(max(0, l2 - l3 - m1, l1 - l3 + m2), min(free1, l1 - m1, l2 + m2) + 1)
    )
    factorial = math.factorial
    over = math.prod(map(factorial, (l1 + m1, l1 - m1, l2 + m2, l2 - m2, l3 + m3, l3 - m3)))
    under = factorial(l1 + l2 + l3 + 1) * factorial(free1) * factorial(free2) * factorial(free3)
    return math.copysign(math.sqrt(racah * racah * over / under), racah)


@functools.cache
def _in_real_basis(m: int) -> tuple[tuple[int, complex], ...]:
    """Return the complex harmonic of order m as (order, factor) of real harmonics."""
    if m == 0:
        return ((0, 1 + 0j),)
    factor = math.sqrt(0.5) * ((-1) ** m if m > 0 else 1)
    return ((abs(m), complex(factor, 0)), (-abs(m), complex(0, math.copysign(1, m) * factor)))

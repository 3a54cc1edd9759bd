"""Coupling coefficients of symmetric tensor powers of a feature vector, as polynomials.

Coupling copies of a vector x successively, ((x (x) x) (x) x) ..., gives for each path and component
a homogeneous polynomial in the components of x. Since all copies are the same vector, only its
coefficients over the monomials x_a x_b x_c with a <= b <= c matter. They replace the non-symmetric
tensors of MACE (its U matrices).
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from scitoolkit.ops.wigner import wigner_3j

Irrep = tuple[int, int]  # degree, parity (+1 or -1)
# Above this order the intermediate irreps are restricted to those of spherical harmonics, as in
# mace-torch, to limit the number of paths.
UNLIMITED_ORDER = 3


def dim(irreps: tuple[Irrep, ...]) -> int:
    """Return the number of components of one copy of each irrep.

    Example:
        >>> dim(((0, 1), (1, -1)))
        4
    """
    return sum(2 * degree + 1 for degree, _ in irreps)


@functools.cache
def monomials(num_variables: int, order: int) -> tuple[tuple[int, ...], ...]:
    """Return the index tuples a <= b <= ... of all monomials of an order in lexical order.

    Example:
        >>> monomials(2, 2)
        ((0, 0), (0, 1), (1, 1))
    """
    return tuple(itertools.combinations_with_replacement(range(num_variables), order))


@functools.cache
def _positions(num_variables: int, order: int) -> dict[tuple[int, ...], int]:
    return {monomial: i for i, monomial in enumerate(monomials(num_variables, order))}


@functools.cache
def _times_variable(num_variables: int, order: int) -> np.ndarray:
    """Return the index of (monomial times x_i) among those of order + 1, shape (i, monomial)."""
    places = _positions(num_variables, order + 1)
    return np.array(
        [
            [places[tuple(sorted((*monomial, i)))] for monomial in monomials(num_variables, order)]
            for i in range(num_variables)
        ]
    )


def _linear(irreps: tuple[Irrep, ...]) -> list[tuple[Irrep, np.ndarray]]:
    """Return the path of order 1 into each irrep: x itself."""
    unit, start, paths = np.eye(dim(irreps)), 0, []
    for irrep in irreps:
        stop = start + 2 * irrep[0] + 1
        paths.append((irrep, unit[start:stop]))
        start = stop
    return paths


def _couple(irreps, left_paths, order: int, keep) -> list[tuple[Irrep, np.ndarray]]:
    """Couple every path of `order - 1` with another copy of the irreps; sort them by irrep."""
    shift = _times_variable(dim(irreps), order - 1)
    num_monomials = len(monomials(dim(irreps), order))
    paths = []
    for left, polynomials in left_paths:
        start = 0
        for degree, parity in irreps:
            for out in range(abs(left[0] - degree), left[0] + degree + 1):
                irrep = (out, left[1] * parity)
                if not keep(irrep):
                    continue
                constants = wigner_3j(out, left[0], degree) * math.sqrt(2 * out + 1)
                total = np.zeros((2 * out + 1, num_monomials))
                for i in range(2 * degree + 1):
                    np.add.at(
                        total,
                        (slice(None), shift[start + i]),  # type: ignore[arg-type]
                        constants[:, :, i] @ polynomials,
                    )
                paths.append((irrep, total))
            start += 2 * degree + 1
    return sorted(paths, key=lambda path: path[0])


@functools.lru_cache(maxsize=64)
def basis(irreps: tuple[Irrep, ...], out: Irrep, order: int) -> np.ndarray:
    """Return the polynomials of all paths that couple `order` copies of the irreps into `out`.

    Args:
        irreps: (degree, parity) of each segment of x.
        out: (degree, parity) of the result.
        order: number of copies.

    Returns:
        Coefficients in component normalisation, shape (2l + 1, monomials, paths), float64; the
        paths are in the order of MACE.

    Source: Batatia et al. 2022 (arXiv 2206.07697), equation 10.

    Example:
        >>> basis(((0, 1), (1, -1)), (0, 1), 2).shape  # s s and p . p
        (1, 10, 2)
    """
    natural = order > UNLIMITED_ORDER
    widest = max(degree for degree, _ in irreps)
    paths = _linear(irreps)
    for number in range(2, order + 1):
        reach = out[0] + widest * (order - number)  # higher degrees cannot couple into `out`

        def keep(irrep: Irrep, last=number == order, reach=reach) -> bool:
            if natural and irrep[1] != (-1) ** irrep[0]:
                return False
            return irrep == out if last else irrep[0] <= reach

        paths = _couple(irreps, paths, number, keep)
    chosen = [values for irrep, values in paths if irrep == out]
    if not chosen:
        return np.zeros((2 * out[0] + 1, len(monomials(dim(irreps), order)), 0))
    return np.stack(chosen, axis=-1)

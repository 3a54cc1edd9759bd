"""Least distances of atoms over their covalent radii, by which a wrong unit of length shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.elements import BONDING_RADII

Array = np.ndarray[Any, Any]
ISOLATED_RATIO = 3.0
"""Nearest image / covalent diameter from which the atom of a one-atom cell counts as isolated."""


class Structure(Protocol):
    """Atoms in a cell, which are only read."""

    @property
    def species(self) -> Array:
        """Symbols of elements, or other names, (N,)."""

    @property
    def positions(self) -> Array:
        """Positions in Å, (N, 3)."""

    @property
    def cell(self) -> Array:
        """Lattice vectors in Å, (3, 3)."""

    @property
    def pbc(self) -> Array:
        """Whether each direction is periodic, (3,)."""


def check_lengths(frames: Sequence[Structure], where: str) -> None:
    """Raise if nearest-neighbour distances are implausible for chemical bonds in Å."""
    ratios = [r for frame in frames[:8] if (r := bond_ratio(frame)) is not None]
    if not ratios:
        return
    ratio = float(np.median(ratios))
    # Bonded atoms have a ratio near 1. Taken for Å, positions in bohr give 1.89 times as much and
    # those in nm a tenth: the bounds are between these and 1.
    if 0.55 < ratio < 1.7:
        return
    guess = "nm" if ratio < 0.55 else "bohr"
    raise DataError(
        f"nearest neighbours are at {ratio:.2f} times the sum of their radii, "
        f"as if positions were in {guess}",
        where=where,
        allowed="Å by default",
        fix=f"data.labels.length_unit={guess}, or =angstrom if it is meant so",
    )


def bond_ratio(frame: Structure, most: int = 256) -> float | None:
    """Return the median over atoms of nearest distance / sum of radii.

    Radii are covalent, those of noble gases van der Waals'.
    Neighbours are atoms and their periodic images in any cell, so that neither atoms outside the
    cell nor a primitive cell look as if they were far from all others.

    Args:
        frame: positions in Å.
        most: atoms whose nearest neighbours are searched.

    Returns:
        None for an isolated atom, and for names that are no elements.
    """
    try:
        radii = np.array([BONDING_RADII[str(s)] for s in frame.species])
    except KeyError:
        return None  # names of a deepmd type map need not be elements
    periodic = np.asarray(frame.pbc, bool)
    if len(radii) < 2 and not periodic.any():
        return None
    offsets = frame.positions[:most, None] - frame.positions[None]
    sums = radii[:most, None] + radii[None]
    if not periodic.any():
        distances = np.linalg.norm(offsets, axis=-1)
        np.fill_diagonal(distances, np.inf)
        return float(np.median((distances / sums).min(axis=1)))
    vectors = _reduced(np.asarray(frame.cell, np.float64)[periodic])
    inverse = np.linalg.pinv(vectors)
    # The pseudo-inverse gives coordinates along the periodic vectors only: components across them,
    # of slabs and wires, stay as they are.
    offsets = offsets - np.round(offsets @ inverse) @ vectors
    nearest = _nearest(offsets, np.zeros((1, len(vectors))), vectors, sums)
    # Column i of the inverse is normal to all other vectors, with length 1 / height along vector i.
    heights = 1 / np.linalg.norm(inverse, axis=0)
    shortest = np.linalg.norm(vectors, axis=1).min()  # of an atom to its image
    nearest = np.minimum(nearest, shortest / np.diagonal(sums)[: len(nearest)])
    # A nearer image is at most so many steps away, since rounding left half a height each way.
    steps = np.floor(nearest.max() * sums.max() / heights + 0.5).astype(int)
    if steps.any():
        ranges = [np.arange(-most, most + 1) for most in steps]
        images = np.stack(np.meshgrid(*ranges, indexing="ij"), -1)
        nearest = _nearest(offsets, images.reshape(-1, len(vectors)), vectors, sums)
    ratio = float(np.median(nearest))
    return ratio if len(radii) > 1 or ratio < ISOLATED_RATIO else None


def _reduced(vectors: Array) -> Array:
    """Return vectors (D, 3) of the same lattice, each of which no other one shortens.

    A cell with b + 4 a instead of b has small heights, so that many images would be compared.
    """
    vectors = vectors.copy()
    for _ in range(100):  # each round shortens a vector; a few suffice
        before = vectors.copy()
        for i, j in itertools.permutations(range(len(vectors)), 2):
            squared = vectors[j] @ vectors[j]
            if not squared > 0:
                continue
            steps = np.round(vectors[i] @ vectors[j] / squared)
            shorter = vectors[i] - steps * vectors[j]
            if shorter @ shorter < (vectors[i] @ vectors[i]) * (1 - 1e-12):
                vectors[i] = shorter
        if np.array_equal(before, vectors):
            break
    return vectors


def _nearest(offsets: Array, images: Array, vectors: Array, sums: Array) -> Array:
    """Return each atom's least distance / sum of radii over all atoms and images, shape (M,).

    Args:
        offsets: (M, N, 3) Å.
        images: (I, D) whole steps along the D vectors; atoms are no neighbours of themselves.
        vectors: (D, 3) Å.
        sums: of covalent radii, (M, N) Å.
    """
    nearest = np.full(len(offsets), np.inf)
    for image in images:
        distances = np.linalg.norm(offsets + image @ vectors, axis=-1)
        if not image.any():
            np.fill_diagonal(distances, np.inf)
        nearest = np.minimum(nearest, (distances / sums).min(axis=1))
    return nearest

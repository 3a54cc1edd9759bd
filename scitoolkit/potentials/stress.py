"""Stress of an atomic configuration from its virial, in ASE's convention."""

from __future__ import annotations

from typing import Any

import numpy as np


def voigt_stress(virial: np.ndarray, atoms: Any) -> np.ndarray | None:
    """Return the symmetrised stress of an `ase.Atoms` in Voigt order, or None if it is undefined.

    A stress needs a periodic direction and three lattice vectors. That of a slab is per volume of
    its cell, vacuum included, as in ASE; its in-plane part times the height is the tension.

    Args:
        virial: W = -sum r ⊗ dE/dr, eV, shape (3, 3).
        atoms: cell and periodic boundary conditions.

    Returns:
        (6,) xx, yy, zz, yz, xz, xy; eV/Å³, ASE's sign.
    """
    stress = stress_matrix(virial, atoms)
    if np.isnan(stress).all():
        return None
    return stress[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]


def stress_matrix(virial: np.ndarray, atoms: Any) -> np.ndarray:
    """Return the symmetrised stress (3, 3) of `voigt_stress`, NaN where it is undefined."""
    if not atoms.pbc.any() or atoms.cell.rank < 3:
        return np.full((3, 3), np.nan)
    stress = -virial / atoms.get_volume()
    return np.asarray(0.5 * (stress + stress.T))

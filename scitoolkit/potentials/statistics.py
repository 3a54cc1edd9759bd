"""Least-squares energies of species from the compositions and energies of training frames."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from scitoolkit.core.contracts import Batch


def energy_shifts(counts: np.ndarray, energies: np.ndarray) -> np.ndarray:
    """Return the least-squares energies of the species, eV, shape (species,).

    If the compositions do not determine them (such as water at one composition), this is the
    solution of minimum norm.

    Args:
        counts: numbers of atoms, (frames, species).
        energies: (frames,) eV.

    Example:
        >>> energy_shifts(np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([-5.0, -10.0])).tolist()
        [-1.0, -2.0]
    """
    shifts = np.linalg.lstsq(counts, energies, rcond=None)[0]
    return np.round(shifts, 12)  # type: ignore[return-value]


def composition_rank(graphs: Iterable[Batch], num_types: int) -> int:
    """Return the rank of the frames' compositions: how many species' energies they determine."""
    counts = [
        torch.bincount(graph["types"][graph["frame"] == frame], minlength=num_types).numpy()
        for graph in graphs
        for frame in range(len(graph["num_atoms"]))
    ]
    return int(np.linalg.matrix_rank(np.array(counts, dtype=np.float64)))


def composition(graphs: Iterable[Batch], num_types: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of atoms (frames, types) and the energies (frames,) in eV.

    Graphs without energies are left out.
    """
    counts, energies = [], []
    for graph in graphs:
        if "energy" not in graph:
            continue
        for frame, energy in enumerate(graph["energy"].tolist()):
            types = graph["types"][graph["frame"] == frame]
            counts.append(torch.bincount(types, minlength=num_types).numpy())
            energies.append(energy)
    return np.array(counts, dtype=np.float64).reshape(-1, num_types), np.array(energies)

"""Make the molecules: `python generate.py --output .`

Random conjugated molecules in the Hueckel model: the energies of the pi electrons are the
eigenvalues of H = alpha + beta M, where M is 1 for neighbouring atoms and h on the diagonal
(carbon 0, nitrogen 0.5, oxygen 1.0; Streitwieser 1961, table 5.3). Each atom brings one electron.
The target is the energy of the electrons, two in each of the lower half of the orbitals, in |beta|.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

MOLECULES, SMALLEST, LARGEST = 1500, 6, 20
SHIFT = {6: 0.0, 7: 0.5, 8: 1.0}


def skeleton(random: np.random.Generator, atoms: int) -> np.ndarray:
    """Return bonds (B, 2): a random tree of at most three bonds an atom, with rings closed."""
    neighbours: list[set[int]] = [set() for _ in range(atoms)]

    def bond(a: int, b: int) -> None:
        neighbours[a].add(b)
        neighbours[b].add(a)

    for atom in range(1, atoms):
        open_ = [a for a in range(atom) if len(neighbours[a]) < 3]
        bond(atom, int(random.choice(open_[-4:])))
    for _ in range(int(random.integers(0, 1 + atoms // 5))):
        first = int(random.integers(atoms))
        ends = [a for a in _at_distances(neighbours, first, (4, 5)) if len(neighbours[a]) < 3]
        if ends and len(neighbours[first]) < 3:
            bond(first, int(random.choice(ends)))
    return np.array([(a, b) for a in range(atoms) for b in sorted(neighbours[a]) if a < b])


def _at_distances(neighbours: list[set[int]], first: int, wanted: tuple[int, ...]) -> list[int]:
    """Return the atoms some bonds away, which a further bond joins to a ring of 5 or 6."""
    reached, front, out = {first}, {first}, []
    for distance in range(1, max(wanted) + 1):
        front = {b for a in front for b in neighbours[a]} - reached
        reached |= front
        out += sorted(front) if distance in wanted else []
    return out


def energy(z: np.ndarray, bonds: np.ndarray) -> float:
    """Return the energy of the pi electrons relative to alpha for each, in |beta|."""
    matrix = np.diag([SHIFT[int(atom)] for atom in z])
    matrix[bonds[:, 0], bonds[:, 1]] = matrix[bonds[:, 1], bonds[:, 0]] = 1.0
    orbitals = np.sort(-np.linalg.eigvalsh(matrix))
    return 2 * float(orbitals[: len(z) // 2].sum())


def molecules() -> dict[str, np.ndarray]:
    """Return the arrays of the file."""
    random = np.random.default_rng(0)
    kinds, pairs, energies = [], [], []
    for _ in range(MOLECULES):
        atoms = 2 * int(random.integers(SMALLEST // 2, LARGEST // 2 + 1))
        bonds = skeleton(random, atoms)
        z = random.choice([6, 7, 8], size=atoms, p=[0.8, 0.12, 0.08])
        kinds.append(z)
        pairs.append(np.concatenate([bonds, bonds[:, ::-1]]).T)
        energies.append(energy(z, bonds))
    return {
        "num_nodes": np.array([len(z) for z in kinds], np.int32),
        "num_edges": np.array([p.shape[1] for p in pairs], np.int32),
        "edge_index": np.ascontiguousarray(np.concatenate(pairs, axis=1).astype(np.int16)),
        "z": np.concatenate(kinds).astype(np.int8),
        "y": np.array(energies, np.float32),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path())
    np.savez_compressed(parser.parse_args().output / "huckel.npz", **molecules())

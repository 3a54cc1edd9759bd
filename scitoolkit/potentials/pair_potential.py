"""Pair potential of several elements: energies, forces and its file next to a model's weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.potentials.pair_splines import PairSplines

FILE = "pair_potential.json"
ATOMS = 16_384  # atoms evaluated at once


@dataclass(frozen=True)
class PairPotential:
    """A fitted pair potential of T elements, and mean energies.

    Attributes:
        cutoff: Å.
        pairs: (M, 2) types of each unordered pair of elements in the training frames.
        starts: (M,) distance at which the splines begin, Å.
        coefficients: (M, K) of the splines, eV.
        energies: (T,) energy of each element, eV.
        mean_energies: (T,) energy of each element in a fit without pairs, eV.
        ridge: the chosen penalty.
        frames: number of fitted frames.
    """

    cutoff: float
    pairs: list[list[int]]
    starts: list[float]
    coefficients: list[list[float]]
    energies: list[float]
    mean_energies: list[float]
    ridge: float
    frames: int

    def predict(self, graph: Batch) -> tuple[float, np.ndarray]:
        """Return energy, eV, and forces (N, 3), eV/Å, of a graph of one configuration."""
        table, types = np.array(self.coefficients), graph["types"].numpy()
        energy, forces = np.array(self.energies)[types].sum(), np.empty((len(types), 3))
        for block in self._splines().blocks(graph, ATOMS):
            chosen = table.ravel()[block.columns]
            energy += 0.5 * (chosen * block.values).sum()
            slope, length = (chosen * block.slopes).sum(1), len(types[block.atoms])
            for axis in range(3):
                pull = np.bincount(block.centre, slope * block.unit[:, axis], length)
                forces[block.atoms, axis] = pull
        return float(energy), forces

    def virial(self, graph: Batch) -> np.ndarray:
        """Return -sum r ⊗ dE/dr over pairs, (3, 3), eV, of a graph of one configuration."""
        coefficients, virial = np.ravel(self.coefficients), np.zeros((3, 3))
        for block in self._splines().blocks(graph, ATOMS):
            slope = (coefficients[block.columns] * block.slopes).sum(1)
            virial -= 0.5 * (block.unit.T * (slope * block.distance)) @ block.unit
        return virial

    def _splines(self) -> PairSplines:
        functions = len(self.coefficients[0])
        return PairSplines(self.pairs, self.starts, functions, self.cutoff, len(self.energies))

    def mean_energy(self, graph: Batch) -> float:
        """Return the sum of the elements' mean energies, eV."""
        return float(np.array(self.mean_energies)[graph["types"].numpy()].sum())

    def save(self, folder: Path) -> None:
        """Write the potential into the folder of a model's weights."""
        write_atomic(folder / FILE, json.dumps(asdict(self)) + "\n")

    @classmethod
    def load(cls, folder: Path, num_types: int) -> PairPotential | None:
        """Return the potential in the folder of a model's weights, or None if there is none.

        Raises:
            DataError: the file is damaged, or of another number of elements.
        """
        path, fix = folder / FILE, f"remove {FILE}: only the table of baselines requires it"
        if not path.is_file():
            return None
        try:
            loaded = cls(**json.loads(path.read_text(encoding="utf-8")))
            count, functions = np.array(loaded.coefficients, dtype=float).shape
            pairs, starts = np.array(loaded.pairs), np.array(loaded.starts, dtype=float)
            shapes = pairs.shape, starts.shape, len(loaded.energies), len(loaded.mean_energies)
        except (TypeError, ValueError) as error:
            raise DataError(f"damaged ({error})", where=str(path), fix=fix) from None
        wanted = (count, 2), (count,), num_types, num_types
        if not functions or shapes != wanted or not 0 <= pairs.min() <= pairs.max() < num_types:
            raise DataError(
                "the pair potential belongs to another model",
                where=str(path),
                allowed=f"arrays of consistent shapes for {num_types} elements",
                fix=fix,
            )
        return loaded

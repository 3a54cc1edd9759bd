"""ASE calculator of a trained potential: energy, forces, stress and atomic energies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from scitoolkit.core.contracts import Batch
from scitoolkit.core.devices import apply, device_of, to_device
from scitoolkit.core.errors import ConfigError, missing_extra
from scitoolkit.io.ase_frames import from_ase, given_parameters
from scitoolkit.io.atoms import checked
from scitoolkit.potentials.captured import CapturedCall
from scitoolkit.potentials.graph import configuration_graph, within_cutoff
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.prediction import finite_arrays
from scitoolkit.potentials.saved import for_evaluation
from scitoolkit.potentials.stress import voigt_stress

try:
    from ase.calculators.calculator import Calculator as _AseCalculator
    from ase.calculators.calculator import all_changes
except ImportError:
    raise missing_extra("ase", "potentials", "the ASE calculator") from None


class NeighbourCache:
    """Graphs of one moving system; the neighbour list is rebuilt when atoms have moved too far.

    Args:
        type_map: the model's species.
        cutoff: Å.
        skin: Å by which the cached list reaches beyond the cutoff; the list is valid until an atom
            has moved by half of it, or the cell, the species or the boundary conditions change.
            0 rebuilds the list on every call.

    Raises:
        ConfigError: a skin that is negative or no number.
    """

    lists_made: int

    def __init__(self, type_map: tuple[str, ...], cutoff: float, skin: float) -> None:
        if not (isinstance(skin, int | float) and 0 <= skin < np.inf):
            raise ConfigError(f"a skin of {skin} Å", where="skin", allowed="0 and more")
        self._type_map, self._cutoff, self._skin = type_map, cutoff, skin
        self._kept: Batch | None = None
        self._system: tuple[Any, ...] = ()
        self.lists_made = 0

    def graph(self, atoms: Any, *, with_skin: bool = False) -> Batch:
        """Return the graph of an `ase.Atoms`, with the edges within the cutoff.

        Args:
            atoms: the system.
            with_skin: include the longer edges of the cached list, which avoids a copy.

        Raises:
            DataError: an unknown species, a periodic direction without a lattice vector, or
                coinciding atoms.
        """
        if self._kept is None or self._outdated(atoms):
            frame = checked(from_ase(atoms))
            # These may change while the list is valid: `_parameters` adds those of each call.
            frame = replace(frame, frame_parameters=None, atom_parameters=None)
            self._kept = configuration_graph(frame, self._type_map, self._cutoff + self._skin)
            self._system = (atoms.numbers.copy(), atoms.cell.array.copy(), atoms.pbc.copy())
            self._made_at = self._kept["positions"].numpy().copy()
            self.lists_made += 1
        if self._skin == 0:
            return self._kept
        graph = {**self._kept, "positions": torch.from_numpy(np.array(atoms.positions))}
        return graph if with_skin else within_cutoff(graph, self._cutoff)

    def _outdated(self, atoms: Any) -> bool:
        now = (atoms.numbers, atoms.cell.array, atoms.pbc)
        if self._skin == 0 or any(
            not np.array_equal(a, b) for a, b in zip(self._system, now, strict=True)
        ):
            return True
        moved = np.linalg.norm(atoms.positions - self._made_at, axis=1).max()
        # A NaN is never below the limit: the new list is made of checked positions.
        return not bool(moved < 0.5 * self._skin)


class Calculator(_AseCalculator):
    """Energies (eV), forces (eV/Å) and stress (eV/Å³, ASE's sign) of a trained potential.

    Args:
        potential: a run directory, the name of a shipped surrogate, or a `Potential`.
        skin: Å, see `NeighbourCache`.
        compress: evaluate embedding networks from tables.
        precision: float32 or float64 instead of the precision of the training (of a run or a
            surrogate). Use float64 for long simulations at constant energy.
        device: auto (a GPU if there is one), cpu or cuda. None: auto, and a `Potential` stays
            where it is. On a GPU the neighbour list stays there, and steps with one list are
            recorded and replayed (`CapturedCall`) where the model allows it.

    Raises:
        DataError: `potential` contains no trained potential.
        ConfigError: `compress`, and the model has no embedding networks to tabulate; an unknown
            device; a negative skin.
        BackendError: `device="cuda"` without a GPU.

    Example:
        >>> from ase.build import molecule
        >>> from scitoolkit.potentials import SeE2AConfig
        >>> model = SeE2AConfig(sel=[2, 3], embedding=[4, 8], axis_neurons=4,
        ...                     fitting=[8]).build(["O", "H"])
        >>> atoms = molecule("H2O", calculator=Calculator(model))
        >>> atoms.get_forces().shape
        (3, 3)
    """

    implemented_properties: ClassVar[list[str]] = [  # type: ignore[misc]
        "energy",
        "free_energy",
        "energies",
        "forces",
        "stress",
    ]

    def __init__(
        self,
        potential: Potential | Path | str,
        *,
        skin: float = 0.5,
        compress: bool = False,
        precision: str | None = None,
        device: str | None = None,
    ) -> None:
        super().__init__()
        model = for_evaluation(potential, precision, device)
        self.model: Potential = model
        if compress:
            self.model.compress()
        self.neighbours: NeighbourCache = NeighbourCache(model.type_map, model.cutoff, skin)
        self._call = CapturedCall(self.model)
        self._sent: tuple[Any, Batch] | None = None

    def calculate(
        self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes
    ) -> None:
        """Fill `results` with all properties; the stress where `voigt_stress` defines one."""
        super().calculate(atoms, properties, system_changes)
        system: Any = self.atoms
        outputs = self._evaluate(system)
        arrays = finite_arrays(outputs)
        energy = float(arrays["energy"][0])
        self.results: dict[str, float | Any] = {
            "energy": energy,
            "free_energy": energy,
            "energies": arrays["atomic_energy"],
            "forces": arrays["forces"],
        }
        stress = voigt_stress(arrays["virial"][0], system)
        if stress is not None:
            self.results["stress"] = stress

    def _evaluate(self, system: Any) -> dict[str, torch.Tensor]:
        device = device_of(self.model)
        on_gpu = device.type == "cuda"
        # On a GPU an edge beyond the cutoff costs less than a new list of edges in each step.
        with_skin = on_gpu or self.model.streams(len(system))
        graph = self.neighbours.graph(system, with_skin=with_skin)
        if on_gpu:
            graph = {**self._list_on(device, graph), "positions": graph["positions"]}
            graph["positions"] = graph["positions"].to(device)
        return apply(self._call, {**graph, **_parameters(system)}, device)

    def _list_on(self, device: torch.device, graph: Batch) -> Batch:
        """Return the graph with the neighbour list's tensors on a device, copied once a list."""
        key = self.neighbours.lists_made, device
        if self._sent is None or self._sent[0] != key:
            self._sent = key, to_device(graph, device)
        return self._sent[1]


def _parameters(atoms: Any) -> Batch:
    """Return the current frame and atom parameters."""
    frame, of_atoms = given_parameters(atoms)
    out = {}
    if frame is not None:
        out["frame_parameters"] = torch.from_numpy(frame)[None]
    if of_atoms is not None:
        out["atom_parameters"] = torch.from_numpy(of_atoms)
    return out

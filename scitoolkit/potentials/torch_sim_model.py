"""Model of torch-sim: many systems are simulated at once with one call of a trained potential."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.devices import apply
from scitoolkit.core.errors import missing_extra
from scitoolkit.io.atoms import ase
from scitoolkit.potentials.calculator import NeighbourCache
from scitoolkit.potentials.graph import collate
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.prediction import finite_arrays
from scitoolkit.potentials.saved import for_evaluation
from scitoolkit.potentials.stress import stress_matrix

try:
    from torch_sim.models.interface import ModelInterface
except ImportError:
    ModelInterface = torch.nn.Module  # documentation reads this file without the package

if TYPE_CHECKING:
    from torch_sim import SimState


class TorchSimModel(ModelInterface):
    """Trained potential as a model of torch-sim: its integrators, optimizers and autobatching.

    Args:
        potential: a run directory, the name of a shipped surrogate, or a `Potential`.
        skin: Å by which the neighbour lists reach beyond the cutoff, see `NeighbourCache`.
        precision: float32 or float64 instead of that of the training (of a run or a surrogate).
        device: auto (a GPU if there is one), cpu or cuda. None: auto, and a `Potential` stays where
            it is; the states have to be on the same one.
        dtype: of the states and of the outputs; positions are evaluated in float64.

    Raises:
        DataError: `potential` contains no trained potential.
        ConfigError: an unknown device; a negative skin.
        BackendError: `device="cuda"` without a GPU; torch-sim is not installed.

    Example: `ts.integrate(systems, TorchSimModel("acac_mace"), integrator=ts.Integrator.nve,
        n_steps=100, timestep=0.0005, temperature=300)`, with `import torch_sim as ts`.
    """

    def __init__(
        self,
        potential: Potential | Path | str,
        *,
        skin: float = 0.5,
        precision: str | None = None,
        device: str | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        if ModelInterface is torch.nn.Module:
            raise missing_extra("torch-sim-atomistic", "torchsim", "simulations by torch-sim")
        super().__init__()
        model = for_evaluation(potential, precision, device)
        self.potential: Potential = model
        self._device = next(model.parameters()).device
        self._dtype = dtype
        self._compute_forces = self._compute_stress = True
        self._skin = float(skin)
        self._caches: list[NeighbourCache] = []
        self._new_cache()

    def forward(self, state: SimState | dict[str, Any], **_: Any) -> dict[str, Tensor]:
        """Return energies, forces and stresses of all systems of a state.

        Args:
            state: a `torch_sim.SimState`, or its fields as a dictionary.

        Returns:
            `energy` (system,) eV, `forces` (atom, 3) eV/Å, and `stress` (system, 3, 3) eV/Å³ with
            ASE's sign; NaN in systems without periodic directions or without a volume.

        Raises:
            DataError: an unknown species, coinciding atoms, a position that is not finite.
            NumericalError: an output is not finite.
        """
        fields = state if isinstance(state, dict) else vars(state)
        systems = _systems(fields)
        while len(self._caches) < len(systems):
            self._new_cache()
        graphs = [c.graph(s) for c, s in zip(self._caches, systems, strict=False)]
        arrays = finite_arrays(apply(self.potential, collate(graphs), self._device))
        pairs = zip(arrays["virial"], systems, strict=True)
        stress = np.stack([stress_matrix(virial, system) for virial, system in pairs])
        outputs = {"energy": arrays["energy"], "forces": arrays["forces"], "stress": stress}
        return {
            name: torch.from_numpy(array).to(self._device, self._dtype)
            for name, array in outputs.items()
        }

    def _new_cache(self) -> None:
        model = self.potential
        self._caches.append(NeighbourCache(model.type_map, model.cutoff, self._skin))


def _systems(fields: dict[str, Any]) -> list[Any]:
    """Return the `ase.Atoms` of each system of a state; cells have their vectors in columns."""
    arrays = {
        name: np.asarray(fields[name].detach().cpu())
        for name in ("positions", "cell", "atomic_numbers", "system_idx")
    }
    pbc = np.broadcast_to(np.asarray(torch.as_tensor(fields["pbc"]).cpu(), dtype=bool), 3)
    package = ase("simulations by torch-sim")
    systems = []
    for number, cell in enumerate(arrays["cell"].astype(np.float64)):
        atoms = arrays["system_idx"] == number
        systems.append(
            package.Atoms(
                arrays["atomic_numbers"][atoms],
                positions=arrays["positions"][atoms].astype(np.float64),
                cell=cell.T,
                pbc=pbc,
            )
        )
    return systems

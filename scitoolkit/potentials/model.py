"""Base class of interatomic potentials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from scitoolkit.core import plugins
from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.neighbours import sums
from scitoolkit.potentials.graph import PARAMETERS, edge_vectors
from scitoolkit.potentials.long_range import LongRange
from scitoolkit.potentials.long_range_config import LongRangeConfig
from scitoolkit.potentials.mean_interaction import MeanInteraction
from scitoolkit.potentials.zbl import Zbl
from scitoolkit.potentials.zbl_config import ZblConfig

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Potential(nn.Module, ABC):
    """Interatomic potential: a sum over atoms of energies that depend on the neighbours.

    A subclass returns the atomic energies and the derivative of their sum with respect to every
    edge vector; `forward` computes forces and virial from these. Units are eV and Å.

    Attributes:
        type_map: species by type index.
        cutoff: Å.
        zbl: ZBL repulsion added to the learned energy, or None.
        long_range: electrostatic energy beyond the cutoff, or None.
        interaction: mean interaction energy added to the learned energy, or None.
        is_pinned: whether `shift` is the energy of a lone atom, so that the network's energy of
            a lone atom is subtracted at every call; see `pin` and `unpin`.
        not_compiled: why `training.compile` is refused.
        readout: names with wildcards of the parameters after the last features.
    """

    readout: ClassVar[tuple[str, ...]] = ()
    not_compiled: ClassVar[str] = "it differentiates its energy, and the loss its forces again"

    def __init__(
        self,
        type_map: Sequence[str],
        cutoff: float,
        zbl: ZblConfig | None = None,
        long_range: LongRangeConfig | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.type_map: tuple[str, ...] = tuple(type_map)
        self.cutoff: float = float(cutoff)
        self.zbl: Zbl | None = None if zbl is None else Zbl(zbl, type_map, cutoff)
        self.long_range: LongRange | None = None
        if long_range is not None:
            self.long_range = LongRange(long_range, type_map, cutoff, seed)
        self.interaction: MeanInteraction | None = None
        self.register_load_state_dict_pre_hook(_with_interaction)
        self.is_pinned: bool = False

    @abstractmethod
    def edge_gradients(self, graph: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return atomic energies (N,), edge vectors (E, 3) and dE/d(edge vector) (E, 3).

        In training mode the energies and derivatives can be differentiated with respect to the
        parameters.
        """

    @abstractmethod
    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Set the constants that are not trained (shifts, scales, counts) from labelled graphs.

        The labels must be those that the model is fitted to, see `residual_labels`.
        """

    @property
    def has_tables(self) -> bool:
        """Whether `compress` has networks to tabulate."""
        return False

    def compress(self, *, shortest: float = 0.5, tolerance: float = 1e-10) -> Self:
        """Tabulate networks for inference (training still evaluates them); return self.

        Args:
            shortest: smallest tabulated distance, Å; closer pairs evaluate the networks.
            tolerance: relative error of the tabulated functions.

        Raises:
            ConfigError: the model has nothing to tabulate.
            BackendError: the table kernels are not available.
            NumericalError: the tolerance cannot be reached.
        """
        raise no_tables(type(self).__name__)

    def streams(self, num_atoms: int) -> bool:
        """Return whether `num_atoms` atoms are evaluated in blocks of receivers to save memory.

        Edges beyond the cutoff are then allowed and contribute nothing.
        """
        return False

    def extend(self, source: Potential) -> None:
        """Copy the weights of a model that has only the first elements of this one.

        Energies of its elements do not change; the other elements keep their random weights.

        Raises:
            ConfigError: the kind of model cannot be extended.
        """
        raise ConfigError(
            f"elements cannot be added to a {type(self).__name__}",
            where="start.new_elements",
            allowed="mace, nequip",
            fix="train from the beginning: leave out start",
        )

    def species_weights(self) -> list[Tensor]:
        """Return the parameters whose first dim is the species, T, or pairs of species, T²."""
        return []

    def add_interaction(self) -> MeanInteraction:
        """Return the mean interaction energy, which is added if the model has none."""
        if self.interaction is None:
            self.interaction = MeanInteraction(len(self.type_map), self.cutoff)
            self.interaction.to(self.get_buffer("shift").device)
        return self.interaction

    def pin(self) -> None:
        """Let `shift` be the energy of a lone atom of each species, also during training."""
        self.is_pinned = True
        self.add_interaction()

    @torch.no_grad()
    def unpin(self) -> None:
        """Move the network's energy of a lone atom into `shift`; energies do not change.

        The trained change of the mean interaction energies is absorbed too.
        """
        if self.interaction is not None:
            self.interaction.absorb()
        if not self.is_pinned:
            return
        training, shift = self.training, self.get_buffer("shift")
        self.eval()
        shift -= self.lone_network_energies(one_by_one=True).to(shift)
        self.is_pinned = False
        self.train(training)

    @torch.no_grad()
    def lone_energies(self) -> Tensor:
        """Return the energy of a lone atom of each species, eV, shape (T,), float64."""
        shift = self.get_buffer("shift")
        if self.is_pinned:
            return shift.clone()
        training = self.training
        self.eval()
        energies = shift + self.lone_network_energies(one_by_one=True)
        self.train(training)
        return energies

    def lone_parameters(self) -> dict[str, Tensor]:
        """Return the external parameters of a lone atom, shape (1, ·), by key of a batch."""
        return {}

    def lone_network_energies(self, *, one_by_one: bool = False) -> Tensor:
        """Return the learned energy of a lone atom of each species, without `shift`, (T,).

        Args:
            one_by_one: evaluate as `Calculator` does, with the same rounding.
        """
        shift = self.get_buffer("shift")
        kinds = torch.arange(len(self.type_map), device=shift.device)
        graphs = kinds.split(1) if one_by_one else [kinds]
        energies = [self.edge_gradients(self._lone_graph(types))[0] for types in graphs]
        return torch.cat(energies).double() - shift

    def _lone_graph(self, types: Tensor) -> Batch:
        """Return the batch of lone atoms, a configuration each."""
        number, kinds, device = len(types), len(self.type_map), types.device
        graph = {
            "positions": torch.zeros(number, 3, dtype=torch.float64, device=device),
            "types": types,
            "frame": torch.arange(number, device=device),
            "num_atoms": torch.ones(number, dtype=torch.int64, device=device),
            "cell": torch.zeros(number, 3, 3, dtype=torch.float64, device=device),
            "pbc": torch.zeros(number, 3, dtype=torch.bool, device=device),
            "edge_index": torch.zeros(2, 0, dtype=torch.int64, device=device),
            "edge_shift": torch.zeros(0, 3, dtype=torch.float64, device=device),
            "segments": torch.zeros(number * kinds + 1, dtype=torch.int64, device=device),
        }
        parameters = self.lone_parameters()
        return graph | {
            name: parameters[name].expand(number, -1) for name in PARAMETERS if name in parameters
        }

    def residual_labels(self, graph: Batch) -> Batch:
        """Return a graph with the ZBL repulsion and fixed charges subtracted from its labels."""
        parts = []
        if self.zbl is not None:
            vectors = edge_vectors(graph)
            parts.append(self._sums(graph, vectors, *self.zbl(graph, vectors)))
        if self.long_range is not None and self.long_range.is_fixed:
            parts.append(self.long_range(graph))
        if not parts:
            return graph
        out = dict(graph)
        for part in parts:
            for label in ("energy", "forces", "virial"):
                if label in graph:
                    out[label] = out[label] - part[label]
        return out

    def forward(self, graph: Batch) -> dict[str, Tensor]:
        """Return atomic_energy (N,), energy (B,), forces (N, 3) and virial (B, 3, 3).

        The virial is W = -sum r ⊗ dE/dr in eV; the stress in ASE's sign is -W / volume.
        """
        atomic, vectors, gradient = self.edge_gradients(graph)
        if self.is_pinned:
            atomic = atomic - self.lone_network_energies()[graph["types"]]
        if self.zbl is not None:
            vectors = edge_vectors(graph)
            energies, slopes = self.zbl(graph, vectors)
            atomic, gradient = atomic + energies, gradient + slopes
        if self.interaction is not None:
            vectors = edge_vectors(graph)
            energies, slopes = self.interaction(graph, vectors)
            atomic, gradient = atomic + energies, gradient + slopes
        sums = self._sums(graph, vectors, atomic, gradient)
        if self.long_range is None:
            return sums
        far = self.long_range(graph)
        return {name: value + far[name] for name, value in sums.items()}

    def _sums(
        self, graph: Batch, vectors: Tensor, atomic: Tensor, gradient: Tensor
    ) -> dict[str, Tensor]:
        frames = len(graph["num_atoms"])
        energy = sums.place_sums(graph["frame"], atomic, frames)
        if sums.supports(gradient):
            forces, virial = sums.edge_sums(
                graph["edge_index"].contiguous(),
                graph["frame"],
                frames,
                vectors.double().contiguous(),
                gradient.double().contiguous(),
            )
            return {"atomic_energy": atomic, "energy": energy, "forces": forces, "virial": virial}
        ends = graph["edge_index"].flatten()  # all centres, then all neighbours
        forces = sums.place_sums(ends, torch.cat((gradient, -gradient)), len(atomic))
        virial = _virial(graph, vectors, gradient)
        return {"atomic_energy": atomic, "energy": energy, "forces": forces, "virial": virial}


def no_tables(model: str) -> ConfigError:
    """Return the error for compressing a model without networks to tabulate."""
    models = plugins.kind("potential")
    tabulated = [name for name in models if models.get(name).tables]
    return ConfigError(
        f"{model} has no networks to tabulate: it cannot be compressed",
        where="compress=True",
        allowed=f"models {', '.join(tabulated)}",
        fix="compress=False",
    )


def _virial(graph: Batch, vectors: Tensor, gradient: Tensor) -> Tensor:
    frames = len(graph["num_atoms"])
    vectors = vectors.to(gradient.dtype)
    if frames == 1:
        return -(vectors.T @ gradient)[None]
    outer = -(vectors[:, :, None] * gradient[:, None, :]).flatten(1)
    per_edge = graph["frame"][graph["edge_index"][0]]
    return sums.place_sums(per_edge, outer, frames).view(frames, 3, 3)


def autograd_edge_gradients(
    model: nn.Module, vectors: Tensor, energies: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the result of `Potential.edge_gradients` by automatic differentiation.

    Args:
        model: in training mode the derivatives are differentiable again.
        vectors: (E, 3).
        energies: function from edge vectors to atomic energies (N,).
    """
    with torch.enable_grad():
        vectors = vectors.detach().requires_grad_()
        atomic = energies(vectors)
        gradient = vectors.detach()
        if len(vectors):
            (gradient,) = torch.autograd.grad(atomic.sum(), vectors, create_graph=model.training)
    return (atomic if model.training else atomic.detach()), vectors.detach(), gradient


def _with_interaction(module: Potential, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    """Add the mean interaction energy to a model whose stored weights have one."""
    if f"{prefix}interaction.energy" in state:
        module.add_interaction()

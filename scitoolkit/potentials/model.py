"""What every interatomic potential is: a module from a batch of atoms to energies and forces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.core.config import Config
from scitoolkit.core.contracts import Batch
from scitoolkit.core.plugins import Kind
from scitoolkit.ops.neighbours import available
from scitoolkit.ops.neighbours.sums import edge_sums
from scitoolkit.potentials.graph import edge_vectors
from scitoolkit.potentials.zbl import Zbl, ZblConfig

models: Kind[type[Config]] = Kind("potential", "atoms to energies and forces")
"""Configuration classes by `name:`; each has `build(type_map) -> Potential`."""


class Potential(nn.Module, ABC):
    """An energy that is a sum over atoms of functions of what lies within a cutoff.

    A model gives the atoms' energies and the derivative of their sum with respect to every edge
    vector; forces and virial follow from these in one place. All in eV and Å.

    Attributes:
        type_map: species by type index.
        cutoff: Å.
        zbl: the repulsion of nuclei that is added to what the model learns, or None.
    """

    def __init__(
        self, type_map: Sequence[str], cutoff: float, zbl: ZblConfig | None = None
    ) -> None:
        super().__init__()
        self.type_map, self.cutoff = tuple(type_map), float(cutoff)
        self.zbl: Zbl | None = None if zbl is None else zbl.build(type_map, cutoff)

    @abstractmethod
    def edge_gradients(self, graph: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return atomic energies (N,), edge vectors (E, 3) and dE/d(edge vector) (E, 3).

        In training mode both can be differentiated with respect to the parameters.
        """

    @abstractmethod
    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Set from labelled training graphs what is not trained: shifts, scales, counts.

        The labels must be those that remain for the model to learn, see `remainder`.
        """

    def remainder(self, graph: Batch) -> Batch:
        """Return a labelled graph whose labels lack the repulsion of nuclei."""
        if self.zbl is None:
            return graph
        out = dict(graph)
        vectors = edge_vectors(graph)
        known = self._sums(graph, vectors, *self.zbl(graph, vectors))
        for label in ("energy", "forces", "virial"):
            if label in graph:
                out[label] = graph[label] - known[label]
        return out

    def forward(self, graph: Batch) -> dict[str, Tensor]:
        """Return atomic_energy (N,), energy (B,), forces (N, 3) and virial (B, 3, 3).

        The virial is W = -sum r ⊗ dE/dr in eV; the stress in ASE's sign is -W / volume.
        """
        atomic, vectors, gradient = self.edge_gradients(graph)
        if self.zbl is not None:
            vectors = edge_vectors(graph)
            energies, slopes = self.zbl(graph, vectors)
            atomic, gradient = atomic + energies, gradient + slopes
        return self._sums(graph, vectors, atomic, gradient)

    def _sums(
        self, graph: Batch, vectors: Tensor, atomic: Tensor, gradient: Tensor
    ) -> dict[str, Tensor]:
        frames = len(graph["num_atoms"])
        energy = atomic.new_zeros(frames).index_add(0, graph["frame"], atomic)
        if not gradient.requires_grad and gradient.device.type == "cpu" and available():
            forces, virial = edge_sums(
                graph["edge_index"].contiguous(), graph["frame"], frames,
                vectors.double().contiguous(), gradient.double().contiguous(),
            )  # fmt: skip
            return {"atomic_energy": atomic, "energy": energy, "forces": forces, "virial": virial}
        centre, neighbour = graph["edge_index"]
        forces = torch.zeros_like(graph["positions"], dtype=gradient.dtype)
        forces = forces.index_add(0, centre, gradient).index_add(0, neighbour, -gradient)
        virial = _virial(graph, vectors, gradient)
        return {"atomic_energy": atomic, "energy": energy, "forces": forces, "virial": virial}


def _virial(graph: Batch, vectors: Tensor, gradient: Tensor) -> Tensor:
    frames = len(graph["num_atoms"])
    vectors = vectors.to(gradient.dtype)
    if frames == 1:
        return -(vectors.T @ gradient)[None]
    outer = -(vectors[:, :, None] * gradient[:, None, :]).flatten(1)
    per_edge = graph["frame"][graph["edge_index"][0]]
    return outer.new_zeros(frames, 9).index_add(0, per_edge, outer).view(frames, 3, 3)


def autograd_edge_gradients(
    model: Any, vectors: Tensor, energies: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `edge_gradients` promises for a model written for torch's autograd.

    Args:
        model: its `training` flag says whether derivatives must be differentiable again.
        vectors: (E, 3).
        energies: function from edge vectors to atomic energies (N,).
    """
    with torch.enable_grad():
        vectors = vectors.detach().requires_grad_()
        atomic = energies(vectors)
        if not len(vectors):
            return atomic, vectors, vectors.detach()
        (gradient,) = torch.autograd.grad(atomic.sum(), vectors, create_graph=model.training)
    return (atomic if model.training else atomic.detach()), vectors.detach(), gradient

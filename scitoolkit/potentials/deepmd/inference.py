"""Inference of a Deep Potential in chunks of atoms whose activations fit in the cache.

The atoms are processed by type. With a single descriptor, a fused kernel forms the descriptor,
applies the fitting net and returns the derivative; inputs that all atoms of a type share are folded
into the first bias. Otherwise the nets run in torch on each chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.ops.environment_matrix.reference import Layer
from scitoolkit.ops.fitting_network import FittingNetwork, FittingSpec, available
from scitoolkit.potentials.deepmd.descriptors.base import ChunkedMoments, Descriptor
from scitoolkit.potentials.deepmd.networks import StackedNetworks, linear_output

Part = tuple[ChunkedMoments, Tensor | None]
"""The moments of a descriptor, and the indices of its edges, None if it uses all edges."""


class Fitting:
    """Energies of atoms of one type and their derivatives with respect to the moments.

    Args:
        descriptors: inputs of the fitting nets.
        networks: the fitting nets, one for all types or one per type.
    """

    def __init__(self, descriptors: Sequence[Descriptor], networks: StackedNetworks) -> None:
        self._descriptors, self._networks = tuple(descriptors), networks
        self._packed: dict[int, tuple[Any, FittingNetwork]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without packed networks."""
        return {**self.__dict__, "_packed": {}}

    def layers(self, kind: int) -> list[Layer]:
        """Return the layers of the fitting net of a type."""
        networks = self._networks.networks()
        return networks[kind] if len(networks) > 1 else networks[0]

    def kernel(self, kind: int, parameters: Tensor | None) -> FittingNetwork | None:
        """Return the fused kernel of a type, or None if this model has none.

        Args:
            kind: type of the atoms.
            parameters: (F,), that all atoms share, or None.
        """
        constants = self._constant(kind, parameters)
        spec = self._spec(0 if constants is None else len(constants))
        if spec is None:
            return None
        tensors = list(self._networks.parameters())
        key = (
            tuple((t.device, t.data_ptr(), t._version) for t in tensors),
            None if constants is None else tuple(constants.tolist()),
        )
        if kind not in self._packed or self._packed[kind][0] != key:
            with torch.no_grad():
                layers = _with_bias(self.layers(kind), constants)
                self._packed[kind] = (key, FittingNetwork(spec, layers))
        return self._packed[kind][1]

    def _constant(self, kind: int, given: Tensor | None) -> Tensor | None:
        """Return the inputs that all atoms of a type share, or None."""
        of_type = [descriptor.constant_inputs(kind) for descriptor in self._descriptors]
        parts = [part.detach() for part in (*of_type, given) if part is not None]
        return torch.cat(parts) if parts else None

    def _spec(self, num_given: int) -> FittingSpec | None:
        if len(self._descriptors) != 1:
            return None
        (descriptor,) = self._descriptors
        spec, first = descriptor.fused_fitting(self._networks.widths), self._networks.weight[0]
        if spec is None or not available(spec, first):
            return None
        # The kernel has no residual connection from external parameters in the first layer.
        residual = spec.widths[0] in (first.shape[1], 2 * first.shape[1])
        return None if num_given and residual else spec

    def by_torch(
        self, kind: int, values: Sequence[Tensor], given: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return energies (n,) and derivatives with respect to the moments, for any descriptors.

        Args:
            kind: type of the atoms.
            values: moments of each descriptor, (n, ...).
            given: parameters, (n, ·) each.
        """
        types = torch.full((len(values[0]),), kind, device=values[0].device)
        with torch.enable_grad():
            values = [value.detach().requires_grad_() for value in values]
            pairs = zip(self._descriptors, values, strict=True)
            inputs = torch.cat([*(descriptor(v, types) for descriptor, v in pairs), *given], dim=1)
            energy = linear_output(self.layers(kind), inputs)
            slopes = torch.autograd.grad(energy.sum(), values)
        return energy.detach(), [slope.contiguous() for slope in slopes]


@torch.no_grad()
def chunked_edge_gradients(
    fitting: Fitting,
    parts: Sequence[Part],
    graph: Batch,
    vectors: Tensor,
    given: Sequence[Tensor],
    shift: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return atomic energies (N,), float64, and dE/d(edge vector) (E, 3).

    Args:
        fitting: the fitting nets.
        parts: the moments of each descriptor.
        graph: with all edges.
        vectors: edge vectors, (E, 3), Å.
        given: parameters of each atom, (N, ·) each.
        shift: energy of each type, eV, (T,).
    """
    types = graph["types"]
    atomic, shared = shift[types], _shared(given)
    chunk = min(part.chunk for part, _ in parts)
    for kind in range(len(shift)):
        chosen = (types == kind).nonzero().squeeze(1)
        kernel = None
        if len(chosen) and (not given or shared is not None):
            kernel = fitting.kernel(kind, shared)
        for atoms in chosen.split(chunk) if len(chosen) else ():
            values = [part.values(atoms, kind) for part, _ in parts]
            if kernel is not None:
                energy, slope = kernel(values[0])
                slopes = [slope]
            else:
                of_atoms = [parameters[atoms] for parameters in given]
                energy, slopes = fitting.by_torch(kind, values, of_atoms)
            atomic[atoms] += energy.double()
            for (part, _), slope in zip(parts, slopes, strict=True):
                part.add_slopes(atoms, slope)
    return atomic, _sum(parts, vectors)


def _sum(parts: Sequence[Part], vectors: Tensor) -> Tensor:
    if len(parts) == 1 and parts[0][1] is None:
        return parts[0][0].slopes()
    out = torch.zeros_like(vectors)
    for part, places in parts:
        slopes = part.slopes()
        out = out + slopes if places is None else out.index_add(0, places, slopes)
    return out


def _shared(given: Sequence[Tensor]) -> Tensor | None:
    """Return the parameters (F,) that all atoms share, or None if they differ."""
    if not given or not len(given[0]):
        return None
    numbers = torch.cat(list(given), dim=1)
    return numbers[0] if bool((numbers == numbers[:1]).all()) else None


def _with_bias(layers: Sequence[Layer], given: Tensor | None) -> Sequence[Layer]:
    """Return layers without the inputs `given`, whose contribution is added to the first bias."""
    if given is None:
        return layers
    (weight, bias, step), *others = layers
    inputs = len(weight) - len(given)
    return [(weight[:inputs], bias + given @ weight[inputs:], step), *others]

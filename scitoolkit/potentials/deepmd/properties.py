"""Dipoles, polarisabilities and densities of states from Deep Potential descriptors.

These models are for inference with weights of deepmd-kit: no supported data format has their
labels, so that they cannot be trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.neighbours.sums import place_sums
from scitoolkit.potentials.deepmd.config import FittingFields
from scitoolkit.potentials.deepmd.model import DeepPotential
from scitoolkit.potentials.deepmd.networks import linear_outputs
from scitoolkit.potentials.graph import edge_vectors

PropertyKind = Literal["dipole", "polarisability", "dos"]


class PropertyModel(nn.Module):
    """Model of an atomic property and its sum over each configuration.

    With the descriptors' vectors R (M, 3) of an atom and the outputs f of the fitting net plus the
    shift of the atom's type: dipole R^T f; polarisability R^T diag(f) R, or R^T (F + F^T)/2 R for
    outputs F (M, M), times the type's scale, plus an isotropic part; density of states f.

    Args:
        config: of descriptors and fitting nets; its `zbl` and `long_range` are ignored.
        type_map: species.
        kind: of the property.
        number: number of energies of a density of states.
        diagonal: whether the outputs of a polarisability are a diagonal.

    Raises:
        ConfigError: the property requires vectors, and no descriptor has them.
    """

    def __init__(
        self,
        config: FittingFields,
        type_map: Sequence[str],
        kind: PropertyKind,
        *,
        number: int = 1,
        diagonal: bool = True,
    ) -> None:
        super().__init__()
        vectors = sum(descriptor.num_vectors for descriptor in config.descriptor_configs)
        if not vectors and kind != "dos":
            raise ConfigError(
                f"a {kind} requires descriptors with directions", allowed="se_e2_a, se_atten"
            )
        outputs = {
            "dipole": vectors,
            "polarisability": vectors if diagonal else vectors**2,
            "dos": number,
        }[kind]
        self.kind = kind
        self.diagonal: bool = diagonal
        self.base: DeepPotential = DeepPotential(config, type_map, outputs)
        self.type_map: tuple[str, ...] = self.base.type_map
        self.cutoff: float = self.base.cutoff
        types = len(type_map)
        self.shift: Tensor
        self.scale: Tensor
        self.isotropic: Tensor
        self.register_buffer("shift", torch.zeros(types, outputs, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(types, dtype=torch.float64))
        self.register_buffer("isotropic", torch.zeros(types, dtype=torch.float64))

    def forward(self, graph: Batch) -> dict[str, Tensor]:
        """Return `atomic` (N, ...) and `total` (B, ...), float64, in the units of the labels."""
        types, base = graph["types"], self.base
        vectors = edge_vectors(graph).to(base.dtype)
        with torch.enable_grad():  # `moments` records its vector-Jacobian product
            values = [part.values for part in base.moments(graph, vectors)]
        inputs = base.fitting_inputs(graph, values)
        atomic = self._contracted(self.shift[types] + self._outputs(inputs, types), values, types)
        frames = len(graph["num_atoms"])
        total = place_sums(graph["frame"], atomic, frames)
        return {"atomic": atomic, "total": total}

    def _outputs(self, inputs: Tensor, types: Tensor) -> Tensor:
        networks = self.base.fitting.networks()
        if len(networks) == 1:
            return linear_outputs(networks[0], inputs).double()
        if inputs.device.type != "cpu":
            return self.base.fitting.outputs_by_type(inputs, types).double()
        out = torch.zeros_like(self.shift[types])
        for kind, layers in enumerate(networks):
            chosen = (types == kind).nonzero().squeeze(1)
            of_kind = linear_outputs(layers, inputs.index_select(0, chosen))
            out = out.index_add(0, chosen, of_kind.double())
        return out

    def _contracted(self, outputs: Tensor, values: Sequence[Tensor], types: Tensor) -> Tensor:
        if self.kind == "dos":
            return outputs
        pairs = zip(self.base.descriptors, values, strict=True)
        turning = [descriptor.rotation(v) for descriptor, v in pairs if descriptor.num_vectors]
        rotation = torch.cat(turning, dim=1).double()
        if self.kind == "dipole":
            return torch.einsum("nm,nmi->ni", outputs, rotation)
        outputs = outputs * self.scale[types][:, None]
        if self.diagonal:
            out = torch.einsum("nm,nmi,nmj->nij", outputs, rotation, rotation)
        else:
            square = outputs.view(len(types), *rotation.shape[1:2], -1)
            square = 0.5 * (square + square.transpose(1, 2))
            out = rotation.transpose(1, 2) @ square @ rotation
        return out + self.isotropic[types][:, None, None] * torch.eye(
            3, dtype=out.dtype, device=out.device
        )

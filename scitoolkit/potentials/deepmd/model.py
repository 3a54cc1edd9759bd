"""Deep Potential models: fitting nets over descriptors and external parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError
from scitoolkit.potentials.deepmd.config import (
    FittingFields,
)
from scitoolkit.potentials.deepmd.descriptors.base import Descriptor, NeighbourSums
from scitoolkit.potentials.deepmd.inference import Fitting, chunked_edge_gradients
from scitoolkit.potentials.deepmd.networks import StackedNetworks, linear_output
from scitoolkit.potentials.graph import PARAMETERS, edge_vectors, within_cutoff, without_edges
from scitoolkit.potentials.model import DTYPES, Potential, no_tables
from scitoolkit.potentials.statistics import composition, energy_shifts

LEAST_SPREAD = 1e-2  # smallest standard deviation of a parameter, as in deepmd-kit


class DeepPotential(Potential):
    """Deep Potential: atomic energies from fitting nets over descriptors and external parameters.

    Args:
        config: with a number for every `sel`.
        type_map: species.
        outputs: number of outputs of the fitting nets; 1 for energies.
    """

    readout: ClassVar[tuple[str, ...]] = ("fitting.*",)
    dtype: torch.dtype

    config: FittingFields

    def __init__(self, config: FittingFields, type_map: Sequence[str], outputs: int = 1) -> None:
        parts = config.descriptor_configs
        cutoff = max(part.cutoff for part in parts)
        super().__init__(type_map, cutoff, config.zbl, config.long_range, config.seed)
        self.config, self.dtype, types = config, DTYPES[config.precision], len(type_map)
        generator = torch.Generator().manual_seed(config.seed)
        self.descriptors: Sequence[Descriptor] = nn.ModuleList(  # type: ignore[assignment]
            part.build(types, generator, self.dtype) for part in parts
        )
        inputs = sum(descriptor.width for descriptor in self.descriptors)
        inputs += config.frame_parameters + config.atom_parameters
        self.fitting: StackedNetworks = StackedNetworks(
            1 if config.one_fitting else types,
            inputs,
            config.fitting,
            linear_output=True,
            resnet_dt=config.fitting_resnet_dt,
            generator=generator,
            dtype=self.dtype,
            outputs=outputs,
        )
        self._fused_fitting = Fitting(self.descriptors, self.fitting)
        self.shift: Tensor
        self.register_buffer("shift", torch.zeros(types, dtype=torch.float64))
        for name, number in self._given().items():
            self.register_buffer(f"{name}_mean", torch.zeros(number, dtype=torch.float64))
            self.register_buffer(f"{name}_scale", torch.ones(number, dtype=torch.float64))
        self.register_load_state_dict_pre_hook(_former_state)

    @property
    def _far_is_absent(self) -> bool:
        return all(part.far_is_absent for part in self.descriptors)

    def _given(self) -> dict[str, int]:
        """Return the numbers of frame and atom parameters by name."""
        return {name: getattr(self.config, name) for name in PARAMETERS}

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Set the descriptors' statistics, the energy shifts, and mean and scale of parameters."""
        graphs = list(graphs)
        for descriptor in self.descriptors:
            descriptor.fit_statistics([within_cutoff(graph, descriptor.cutoff) for graph in graphs])
        counts, energies = composition(graphs, len(self.type_map))
        with torch.no_grad():
            self.shift.copy_(torch.from_numpy(energy_shifts(counts, energies)))
            for name, number in self._given().items():
                if number:
                    values = torch.cat([self._numbers(graph, name) for graph in graphs])
                    spread = values.std(0, correction=0).clamp_min(LEAST_SPREAD)
                    self.get_buffer(f"{name}_mean").copy_(values.mean(0))
                    self.get_buffer(f"{name}_scale").copy_(1 / spread)

    def _numbers(self, graph: Batch, name: str) -> Tensor:
        wanted = self._given()[name]
        present = graph[name].shape[1] if name in graph else 0
        if present != wanted:
            raise DataError(
                f"a configuration has {present} {name.replace('_', ' ')}, the model takes {wanted}",
                fix="fparam.npy and aparam.npy in deepmd systems, `fparam` in an extxyz comment "
                "line and a column `aparam` elsewhere",
            )
        return graph[name]

    def species_weights(self) -> list[Tensor]:
        """Return the networks of species or pairs and type embeddings; see `Potential`."""
        networks = [m for m in self.modules() if isinstance(m, StackedNetworks) and m.count > 1]
        embeddings = [p for n, p in self.named_parameters() if n.endswith(".type_embedding")]
        return [*(p for network in networks for p in network.parameters()), *embeddings]

    def lone_parameters(self) -> dict[str, Tensor]:
        """Return the mean external parameters of the training frames."""
        return {
            name: self.get_buffer(f"{name}_mean")[None]
            for name, number in self._given().items()
            if number
        }

    def given_inputs(self, graph: Batch) -> list[Tensor]:
        """Return the normalised frame and atom parameters of each atom, (N, ·) each."""
        out = []
        for name, number in self._given().items():
            if number:
                parameters = self._numbers(graph, name).to(self.shift.device)
                mean, scale = self.get_buffer(f"{name}_mean"), self.get_buffer(f"{name}_scale")
                parameters = ((parameters - mean) * scale).to(self.dtype)
                out.append(parameters[graph["frame"]] if name == "frame_parameters" else parameters)
        return out

    @property
    def has_tables(self) -> bool:
        """Whether a descriptor has networks to tabulate."""
        return any(part.tables for part in self.config.descriptor_configs)

    def compress(self, *, shortest: float = 0.5, tolerance: float = 1e-10) -> Self:
        """Tabulate the networks of the descriptors that support it; see `Potential.compress`."""
        configs = self.config.descriptor_configs
        if not self.has_tables:
            names = ", ".join(part.name for part in configs)
            raise no_tables(f"a Deep Potential of descriptor {names}")
        for config, descriptor in zip(configs, self.descriptors, strict=True):
            if config.tables:
                descriptor.compress(shortest=shortest, tolerance=tolerance)
        return self

    def edge_gradients(self, graph: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return atomic energies, edge vectors and dE/d(edge vector); see `Potential`."""
        vectors = edge_vectors(graph).to(self.dtype)
        chunked = (descriptor.chunked(vectors) for descriptor in self.descriptors)
        if not self.training and all(chunked):
            return self._by_chunks(graph, vectors)
        with torch.enable_grad():
            moments = self.moments(graph, vectors)
            values = [part.values for part in moments]
            for value in values:
                if not value.requires_grad:
                    value.requires_grad_()
            atomic = self._atomic_energies(graph, values)
            slopes = torch.autograd.grad(
                atomic.sum(), values, create_graph=self.training, materialize_grads=True
            )
            parts = [part.vjp(slope) for part, slope in zip(moments, slopes, strict=True)]
            gradient = sum(parts[1:], parts[0])
        if not self.training:
            atomic, gradient = atomic.detach(), gradient.detach()
        return atomic, vectors, gradient

    def moments(self, graph: Batch, vectors: Tensor) -> list[NeighbourSums]:
        """Return the moments of each descriptor from the edge vectors (E, 3), Å."""
        out = []
        for descriptor in self.descriptors:
            part, places = self._part(graph, vectors, descriptor.cutoff)
            if places is None:
                out.append(descriptor.moments(part, vectors))
                continue
            near = descriptor.moments(part, vectors[places])
            out.append(NeighbourSums(near.values, _scattered(near, places, vectors)))
        return out

    def _part(self, graph: Batch, vectors: Tensor, cutoff: float) -> tuple[Batch, Tensor | None]:
        """Return the graph with the edges within `cutoff`, and their indices, None if all are."""
        if vectors.device.type != "cpu" and self._far_is_absent:
            return graph, None  # which edges are near would be known only after a wait
        near = vectors.square().sum(1) <= cutoff**2
        if bool(near.all()):
            return graph, None
        return without_edges(graph, near), near.nonzero().squeeze(1)

    def _by_chunks(self, graph: Batch, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = []
        for descriptor in self.descriptors:
            part, places = self._part(graph, vectors, descriptor.cutoff)
            near = vectors if places is None else vectors[places]
            parts.append((descriptor.chunks(part, near), places))
        atomic, gradient = chunked_edge_gradients(
            self._fused_fitting, parts, graph, vectors, self.given_inputs(graph), self.shift
        )
        return atomic, vectors, gradient

    def _atomic_energies(self, graph: Batch, values: Sequence[Tensor]) -> Tensor:
        types, extra = graph["types"], self.given_inputs(graph)
        out = self.shift[types]
        networks = self.fitting.networks()
        if len(networks) == 1:
            return out + linear_output(networks[0], self._inputs(values, types, extra)).double()
        if types.device.type != "cpu":
            inputs = self._inputs(values, types, extra)
            return out + self.fitting.outputs_by_type(inputs, types).squeeze(1).double()
        for kind, layers in enumerate(networks):
            chosen = (types == kind).nonzero().squeeze(1)
            of_kind = [value.index_select(0, chosen) for value in values]
            inputs = self._inputs(of_kind, types[chosen], [column[chosen] for column in extra])
            out = out.index_add(0, chosen, linear_output(layers, inputs).double())
        return out

    def fitting_inputs(self, graph: Batch, values: Sequence[Tensor]) -> Tensor:
        """Return the inputs of the fitting nets, (N, ·): descriptors, then parameters."""
        return self._inputs(values, graph["types"], self.given_inputs(graph))

    def _inputs(self, values: Sequence[Tensor], types: Tensor, given: Sequence[Tensor]) -> Tensor:
        parts = [
            descriptor(v, types) for descriptor, v in zip(self.descriptors, values, strict=True)
        ]
        return parts[0] if len(parts) + len(given) == 1 else torch.cat([*parts, *given], dim=1)


def _scattered(found: NeighbourSums, places: Tensor, vectors: Tensor) -> Any:
    """Return the vector-Jacobian product of `found` for all edges, zero beyond the cutoff."""
    return lambda cotangent: torch.zeros_like(vectors).index_add(0, places, found.vjp(cotangent))


def _former_state(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Rename tensors of se_e2_a and se_e2_r models saved in the former layout."""
    parts = tuple(f"{prefix}{name}" for name in ("embedding.", "mean", "deviation"))
    former = [key for key in state if key.startswith(parts)]
    for key in former:
        state[f"{prefix}descriptors.0.{key.removeprefix(prefix)}"] = state.pop(key)
    for name, buffer in module.named_buffers(recurse=False) if former else ():
        if not buffer.numel():  # parameters, which such models did not have
            state.setdefault(f"{prefix}{name}", buffer)

"""Deep Potential models beyond plain se_e2_a: other descriptors, several of them, parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from scitoolkit.core.config import Config
from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError
from scitoolkit.potentials.attention import AttentionDescriptorConfig
from scitoolkit.potentials.descriptors import SmoothDescriptorConfig, Steps
from scitoolkit.potentials.graph import PARAMETERS, edge_vectors, without_edges
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.networks import StackedNetworks, linear_output
from scitoolkit.potentials.se_e2_a import DTYPES
from scitoolkit.potentials.statistics import (
    chosen_sel,
    composition,
    energy_shifts,
    most_neighbours,
    warn_of_overflow,
)
from scitoolkit.potentials.zbl import ZblConfig

AnyDescriptor = Annotated[
    SmoothDescriptorConfig | AttentionDescriptorConfig, Field(discriminator="name")
]
LEAST_SPREAD = 1e-2  # of a parameter, as deepmd-kit's


class DeepPotentialConfig(Config):
    """A DeePMD model of any descriptors; names in brackets are those of deepmd-kit's input.json.

    Plain se_e2_a has a model of its own, `name: se_e2_a`, whose inference is faster.

    Attributes:
        descriptors: one, or several side by side [type: hybrid], each with its own cutoff.
        fitting: widths of the fitting nets.
        fitting_step: layers of the fitting nets with a step [resnet_dt].
        shared_fitting: one fitting net for all types, which needs the type in the descriptor, as
            se_atten has it; by default where all descriptors are se_atten.
        frame_parameters: numbers given with every frame, temperature say [numb_fparam].
        atom_parameters: numbers given with every atom [numb_aparam].
        precision: of parameters and arithmetic; energies are summed in float64.
        zbl: repulsion of nuclei added to what is learned, `{}` for its defaults; see `ZblConfig`.
        seed: of the initial weights.

    Example:
        >>> settings = {"descriptors": [{"name": "se_e2_a", "cutoff": 6.0, "sel": [46, 92]},
        ...                             {"name": "se_atten", "cutoff": 4.0, "sel": 40}]}
        >>> DeepPotentialConfig.model_validate(settings).cutoff
        6.0
    """

    name: Literal["deep_potential"] = "deep_potential"
    descriptors: list[AnyDescriptor] = Field(min_length=1)
    fitting: list[PositiveInt] = Field(default=[240, 240, 240], min_length=1)
    fitting_step: Steps = "same_width"
    shared_fitting: bool | None = None
    frame_parameters: NonNegativeInt = 0
    atom_parameters: NonNegativeInt = 0
    precision: Literal["float32", "float64"] = "float64"
    zbl: ZblConfig | None = None
    seed: NonNegativeInt = 0

    @property
    def cutoff(self) -> float:
        """Å, the largest of the descriptors."""
        return max(each.cutoff for each in self.descriptors)

    @property
    def one_fitting(self) -> bool:
        """Whether one fitting net serves all types."""
        if self.shared_fitting is not None:
            return self.shared_fitting
        return all(each.name == "se_atten" for each in self.descriptors)

    def counted(self, graphs: Sequence[Batch], type_map: Sequence[str]) -> DeepPotentialConfig:
        """Return the configuration with `sel` counted where it is `auto`; warn where it is small.

        Raises:
            DataError: no graph.
        """
        descriptors: list[Any] = []
        for each in self.descriptors:
            near = [
                without_edges(g, edge_vectors(g).square().sum(1) < each.cutoff**2) for g in graphs
            ]
            most = most_neighbours(near, len(type_map))
            names = type_map
            if each.name == "se_atten":  # neighbours of all types share its places
                most = [max(int(_neighbours(g, len(type_map)).max()) for g in near)]
                names = ["any"]
            if each.sel == "auto":
                descriptors.append(each.with_sel(chosen_sel(most)))
                continue
            sel = [each.sel] if isinstance(each.sel, int) else list(each.sel)
            if len(sel) == len(most):
                warn_of_overflow(most, sel, names)
            descriptors.append(each)
        return self.model_copy(update={"descriptors": descriptors})

    def build(self, type_map: Sequence[str]) -> DeepPotential:
        """Return the untrained model; every `sel` must be a number by now."""
        return DeepPotential(self, type_map)


def _neighbours(graph: Batch, num_types: int) -> Tensor:
    """Return the number of neighbours of each atom."""
    return graph["segments"].diff().view(-1, num_types).sum(1)


class DeepPotential(Potential):
    """Energies from fitting nets over the descriptors of an atom and the given parameters.

    Args:
        config: every `sel` is a number.
        type_map: species.
        outputs: of the fitting nets; more than one only for a property that is no energy.
    """

    def __init__(
        self, config: DeepPotentialConfig, type_map: Sequence[str], outputs: int = 1
    ) -> None:
        super().__init__(type_map, config.cutoff, config.zbl)
        self.config, self.dtype, types = config, DTYPES[config.precision], len(type_map)
        generator = torch.Generator().manual_seed(config.seed)
        self.descriptors = nn.ModuleList(
            each.build(types, generator, self.dtype) for each in config.descriptors
        )
        inputs = sum(each.width for each in self.descriptors)
        inputs += config.frame_parameters + config.atom_parameters
        self.fitting = StackedNetworks(
            1 if config.one_fitting else types, inputs, config.fitting, step=config.fitting_step,
            linear_output=True, generator=generator, dtype=self.dtype, outputs=outputs,
        )  # fmt: skip
        self.shift: Tensor
        self.register_buffer("shift", torch.zeros(types, dtype=torch.float64))
        for name, number in self._given().items():
            self.register_buffer(f"{name}_mean", torch.zeros(number, dtype=torch.float64))
            self.register_buffer(f"{name}_scale", torch.ones(number, dtype=torch.float64))

    def _given(self) -> dict[str, int]:
        """Return how many parameters are given with frames and with atoms."""
        return {name: getattr(self.config, name) for name in PARAMETERS}

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Measure the environments, the energy shift of each type, mean and scale of parameters."""
        graphs = list(graphs)
        for each in self.descriptors:
            each.fit_statistics(graphs)
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
        found = graph[name].shape[1] if name in graph else 0
        if found != wanted:
            raise DataError(
                f"a configuration with {found} {name.replace('_', ' ')}, the model takes {wanted}",
                fix="fparam.npy and aparam.npy in deepmd systems, `fparam` in an extxyz comment "
                "line and a column `aparam` elsewhere",
            )  # fmt: skip
        return graph[name]

    def edge_gradients(self, graph: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return atomic energies, edge vectors and dE/d(edge vector); see `Potential`."""
        vectors = edge_vectors(graph).to(self.dtype)
        with torch.enable_grad():
            moments = [each.moments(graph, vectors) for each in self.descriptors]
            values = [part.values for part in moments]
            for each in values:
                if not each.requires_grad:
                    each.requires_grad_()
            atomic = self._atomic_energies(graph, values)
            slopes = torch.autograd.grad(
                atomic.sum(), values, create_graph=self.training, materialize_grads=True
            )
            gradient = torch.zeros_like(vectors)
            for part, slope in zip(moments, slopes, strict=True):
                gradient = gradient + part.pull(slope)
        if not self.training:
            atomic, gradient = atomic.detach(), gradient.detach()
        return atomic, vectors, gradient

    def _atomic_energies(self, graph: Batch, values: Sequence[Tensor]) -> Tensor:
        types = graph["types"]
        inputs = torch.cat(self.fitting_inputs(graph, values), dim=1)
        out = self.shift[types]
        networks = self.fitting.networks()
        if len(networks) == 1:
            return out + linear_output(networks[0], inputs).double()
        for kind, layers in enumerate(networks):
            chosen = (types == kind).nonzero().squeeze(1)
            energies = linear_output(layers, inputs.index_select(0, chosen))
            out = out.index_add(0, chosen, energies.double())
        return out

    def fitting_inputs(self, graph: Batch, values: Sequence[Tensor]) -> list[Tensor]:
        """Return what the fitting nets read, (N, ·) each: descriptors, then parameters."""
        types = graph["types"]
        inputs = [each(v, types) for each, v in zip(self.descriptors, values, strict=True)]
        for name, number in self._given().items():
            if number:
                given = self._numbers(graph, name).to(self.shift.device)
                mean, scale = self.get_buffer(f"{name}_mean"), self.get_buffer(f"{name}_scale")
                given = ((given - mean) * scale).to(self.dtype)
                inputs.append(given[graph["frame"]] if name == "frame_parameters" else given)
        return inputs

"""The smooth-edition Deep Potential with two-body embedding (se_e2_a, se_e2_r)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from scitoolkit.core.config import Config
from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.ops.environment_matrix import EnvironmentSpec, reference
from scitoolkit.potentials.graph import edge_vectors
from scitoolkit.potentials.model import Potential, autograd_edge_gradients
from scitoolkit.potentials.networks import StackedNetworks, linear_output
from scitoolkit.potentials.se_kernels import (
    Constants,
    inferred_edge_gradients,
    kernel_constants,
    kernels_available,
    trained_edge_gradients,
)
from scitoolkit.potentials.statistics import (
    composition,
    energy_shifts,
    environment_statistics,
)
from scitoolkit.potentials.zbl import ZblConfig

Steps = Literal["none", "same_width", "all"]
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class SmoothEditionConfig(Config):
    """A DeePMD model; names in brackets are those of deepmd-kit's input.json.

    Attributes:
        name: `se_e2_a` sees distances and directions, `se_e2_r` distances alone.
        cutoff: Å [rcut].
        cutoff_smooth: Å, where the switch begins [rcut_smth].
        sel: most neighbours of each type, in the order of the type map; `auto` counts them.
        embedding: widths [neuron].
        axis_neurons: second factor of the descriptor, se_e2_a only [axis_neuron].
        one_side: whether the embedding ignores the centre's type [type_one_side].
        embedding_step: layers of the embedding with a step [resnet_dt]: deepmd-kit's TensorFlow
            backend has them in layers that keep their width (same_width), its others in all.
        fitting: widths of the fitting nets.
        fitting_step: likewise of the fitting nets.
        precision: of parameters and arithmetic; energies are summed in float64.
        zbl: repulsion of nuclei added to what is learned, `{}` for its defaults; see `ZblConfig`.
        seed: of the initial weights.
    """

    name: Literal["se_e2_a", "se_e2_r"] = "se_e2_a"
    cutoff: PositiveFloat = 6.0
    cutoff_smooth: float = Field(default=0.5, ge=0)
    sel: list[PositiveInt] | Literal["auto"] = "auto"
    embedding: list[PositiveInt] = Field(default=[25, 50, 100], min_length=1)
    axis_neurons: PositiveInt = 16
    one_side: bool = True
    embedding_step: Steps = "none"
    fitting: list[PositiveInt] = Field(default=[240, 240, 240], min_length=1)
    fitting_step: Steps = "same_width"
    precision: Literal["float32", "float64"] = "float64"
    zbl: ZblConfig | None = None
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _fits(self) -> SmoothEditionConfig:
        if self.cutoff_smooth >= self.cutoff:
            raise ValueError(
                f"cutoff_smooth {self.cutoff_smooth} must be below cutoff {self.cutoff}"
            )
        if self.axis_neurons > self.embedding[-1]:
            raise ValueError(
                f"axis_neurons {self.axis_neurons} must not exceed the last embedding width"
            )
        return self

    def with_sel(self, sel: Sequence[int]) -> SmoothEditionConfig:
        """Return the configuration with `sel` filled in."""
        return self.model_copy(update={"sel": list(sel)})

    def build(self, type_map: Sequence[str]) -> SmoothEdition:
        """Return the untrained model; `sel` must be numbers by now."""
        return SmoothEdition(self, type_map)


class SmoothEdition(Potential):
    """Energies from fitting nets over T T'^T, T the moments of `EnvironmentSpec`.

    The descriptor of an atom is D[m, a] = sum_c T[m, c] T[a, c] with a < axis_neurons (se_e2_r:
    T itself); its energy is fitting_t(D) + shift_t for its type t.

    Source: Zhang et al., NeurIPS 2018 (DeepPot-SE), eqs. 8-11.
    """

    def __init__(self, config: SmoothEditionConfig, type_map: Sequence[str]) -> None:
        super().__init__(type_map, config.cutoff, config.zbl)
        types = len(type_map)
        assert not isinstance(config.sel, str)
        if len(config.sel) != types:
            raise ConfigError(
                f"model.sel has {len(config.sel)} numbers for {types} types",
                allowed=", ".join(type_map), fix="model.sel=auto",
            )  # fmt: skip
        self.config, self.dtype = config, DTYPES[config.precision]
        self.use_kernels = True
        self._constants: tuple[Any, Constants] | None = None
        self._compression: dict[str, float] | None = None
        self.spec = EnvironmentSpec(
            config.cutoff, config.cutoff_smooth, tuple(config.sel), tuple(config.embedding),
            config.one_side, config.name == "se_e2_r",
        )  # fmt: skip
        generator = torch.Generator().manual_seed(config.seed)
        self.embedding = StackedNetworks(
            self.spec.num_networks, 1, config.embedding, step=config.embedding_step,
            linear_output=False, generator=generator, dtype=self.dtype,
        )  # fmt: skip
        width = config.embedding[-1]
        inputs = width if self.spec.radial else width * config.axis_neurons
        self.fitting = StackedNetworks(
            types, inputs, config.fitting, step=config.fitting_step, linear_output=True,
            generator=generator, dtype=self.dtype,
        )  # fmt: skip
        columns = self.spec.columns
        self.mean: Tensor
        self.deviation: Tensor
        self.shift: Tensor
        self.register_buffer("mean", torch.zeros(types, columns, dtype=torch.float64))
        self.register_buffer("deviation", torch.ones(types, columns, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(types, dtype=torch.float64))

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Set mean and deviation of the environments, and the energy shift of each type."""
        graphs = list(graphs)
        mean, deviation = environment_statistics(self.spec, graphs)
        counts, energies = composition(graphs, len(self.type_map))
        with torch.no_grad():
            self.mean.copy_(mean)
            self.deviation.copy_(deviation)
            self.shift.copy_(torch.from_numpy(energy_shifts(counts, energies)))

    def edge_gradients(self, graph: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return atomic energies, edge vectors and dE/d(edge vector); see `Potential`."""
        vectors = edge_vectors(graph).to(self.dtype)
        if self.use_kernels and kernels_available(self, vectors):
            if self.training:
                return trained_edge_gradients(self, graph, vectors)
            return inferred_edge_gradients(self, graph, vectors)
        return autograd_edge_gradients(
            self, vectors, lambda moved: self._atomic_energies(graph, moved)
        )

    def compress(self, *, shortest: float = 0.5, tolerance: float = 1e-10) -> SmoothEdition:
        """Evaluate the embedding from quintic pieces from now on (not in training); return self.

        Args:
            shortest: Å, down to where the table reaches; nearer pairs take the network itself.
            tolerance: of the basis functions, relative.

        Raises:
            NumericalError: the tolerance cannot be met.
            BackendError: the kernels cannot run here, and the reference knows no tables.
        """
        if not (self.use_kernels and kernels_available(self, self.fitting.weight[0])):
            raise BackendError("a table needs the compiled kernels", fix="scitoolkit doctor")
        self._compression = {"shortest": shortest, "tolerance": tolerance}
        self._constants = None
        self.constants()
        return self

    def constants(self) -> Constants:
        """Return what the kernels take besides the graph; made anew when a parameter changed."""
        tensors = [*self.parameters(), self.mean, self.deviation]
        key = tuple((t.data_ptr(), t._version) for t in tensors)
        if self._constants is None or self._constants[0] != key:
            self._constants = (key, kernel_constants(self, self._compression))
        return self._constants[1]

    def _atomic_energies(self, graph: Batch, vectors: Tensor) -> Tensor:
        networks = self.embedding.networks()
        moments = reference.moments(
            self.spec, vectors, graph["segments"], graph["types"],
            self.mean.to(self.dtype), self.deviation.to(self.dtype), networks,
        )  # fmt: skip
        return self.energies_of_moments(moments, graph["types"])

    def descriptor(self, moments: Tensor) -> Tensor:
        """Return the descriptors (N, inputs of the fitting net) of moments (N, M, columns)."""
        if self.spec.radial:
            return moments.squeeze(2)
        axis = moments[:, : self.config.axis_neurons]
        return torch.bmm(moments, axis.transpose(1, 2)).flatten(1)

    def energies_of_moments(self, moments: Tensor, types: Tensor) -> Tensor:
        """Return atomic energies (N,) in float64, the type's shift included."""
        out = self.shift[types]
        for kind, layers in enumerate(self.fitting.networks()):
            chosen = (types == kind).nonzero().squeeze(1)
            energies = linear_output(layers, self.descriptor(moments.index_select(0, chosen)))
            out = out.index_add(0, chosen, energies.double())
        return out

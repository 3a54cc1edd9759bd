"""Descriptor se_atten of DPA-1: type embeddings and gated self-attention among neighbours.

On the CPU inference runs in fused kernels, in chunks of atoms whose attention matrices fit in the
cache; training runs in plain torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.ops.codegen import is_eager, warn_once
from scitoolkit.ops.environment_matrix import EnvironmentSpec, reference
from scitoolkit.ops.fitting_network import FittingSpec
from scitoolkit.ops.neighbour_attention import (
    KeptAtoms,
    KeptMoments,
    LayerWeights,
    NeighbourAttentionSpec,
    Neighbours,
    Weights,
    available,
    segments,
)
from scitoolkit.ops.neighbour_attention.public import runs_by_segments
from scitoolkit.ops.neighbour_attention.reference import Slots, gate_directions, refined_moments
from scitoolkit.potentials.deepmd.descriptors.attention_layer import AttentionLayer
from scitoolkit.potentials.deepmd.descriptors.base import Descriptor
from scitoolkit.potentials.deepmd.descriptors.environment import check_pairs, without_excluded
from scitoolkit.potentials.deepmd.descriptors.se_atten_config import (
    SeAttenDescriptorConfig,
)
from scitoolkit.potentials.deepmd.descriptors.se_atten_file import (
    attention_tree,
    fill_attention,
)
from scitoolkit.potentials.deepmd.descriptors.trees import (
    common_tree,
    repeated,
    statistics,
)
from scitoolkit.potentials.deepmd.file import Tree
from scitoolkit.potentials.deepmd.networks import StackedNetworks
from scitoolkit.potentials.deepmd.statistics import (
    environment_statistics,
)

CHUNK = 12  # atoms whose attention is stored at a time in inference: 1 MB each by default


class SeAttenDescriptor(Descriptor):
    """Descriptor D = T T'^T as in se_e2_a, of basis functions refined by attention.

    Source: Zhang et al., DPA-1, npj Computational Materials 10, 94 (2024), arXiv 2208.08236.
    """

    width: int

    def __init__(
        self,
        config: SeAttenDescriptorConfig,
        num_types: int,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        assert not isinstance(config.sel, str)
        check_pairs(config.exclude_types, num_types)
        self.config: SeAttenDescriptorConfig = config
        self.dtype = dtype
        self.cutoff: float = config.cutoff
        self.far_is_absent: bool = config.smooth
        self.use_kernels = True
        self._packed: tuple[Any, KeptMoments] | None = None
        # The statistics depend only on the sum of `sel`.
        places = (config.sel, *([0] * (num_types - 1)))
        self.spec: EnvironmentSpec = EnvironmentSpec(
            config.cutoff, config.cutoff_smooth, places, tuple(config.embedding)
        )
        scale = config.temperature
        if scale is None:
            scale = (config.attention_width * config.scaling) ** -0.5
        self.attention: NeighbourAttentionSpec = NeighbourAttentionSpec(
            config.cutoff,
            config.cutoff_smooth,
            config.sel,
            tuple(config.embedding),
            config.attention_width,
            scale,
            config.norm_epsilon,
            config.normalize,
            config.smooth,
            config.angular_gate,
            config.gate_floor,
        )
        values = torch.randn(num_types, config.type_width, generator=generator, dtype=torch.float64)
        spread = (num_types + config.type_width) ** -0.5
        self.type_embedding: nn.Parameter = nn.Parameter((values * spread).to(dtype))
        seen = config.type_width * (1 if config.type_one_side else 2)
        stripped = config.type_input == "strip"

        def network(inputs: int) -> StackedNetworks:
            return StackedNetworks(
                1,
                inputs,
                config.embedding,
                resnet_dt=config.embedding_resnet_dt,
                linear_output=False,
                generator=generator,
                dtype=dtype,
            )

        self.embedding: StackedNetworks = network(1 if stripped else 1 + seen)
        self.type_network: StackedNetworks | None = network(seen) if stripped else None
        self.layers: nn.ModuleList = nn.ModuleList(
            AttentionLayer(config, config.embedding[-1], generator, dtype)
            for _ in range(config.attention_layers)
        )
        self.num_vectors: int = config.num_vectors
        self.width = self.num_vectors * config.axis_neurons
        self.width += config.type_width if config.type_output else 0
        self.deviation: Tensor
        self.register_buffer("deviation", torch.ones(num_types, 4, dtype=torch.float64))

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Set the root mean square of the environments, as deepmd-kit with set_davg_zero."""
        pairs = self.config.exclude_types
        _, deviation = environment_statistics(
            self.spec, [without_excluded(graph, pairs)[0] for graph in graphs]
        )
        with torch.no_grad():
            self.deviation.copy_(deviation)

    def values(self, graph: Batch, vectors: Tensor) -> Tensor:
        """Return the moments of the refined basis functions, (N, M, 4)."""
        part, included, _ = without_excluded(graph, self.config.exclude_types)
        near = vectors if included is None else vectors[included]
        return self._moments(graph["types"], part["edge_index"], near)

    def _moments(self, types: Tensor, edges: Tensor, vectors: Tensor) -> Tensor:
        config, (centre, neighbour) = self.config, edges
        distance = vectors.norm(dim=1)
        switch = reference.switch(distance, config.cutoff_smooth, config.cutoff)
        rows = reference.environment_rows(self.spec, vectors)
        deviation = self.deviation.to(self.dtype)[types[centre]]
        directions = gate_directions(self.attention, vectors, rows[:, 0] / deviation[:, 1])
        rows = rows / deviation
        basis = self._basis(rows[:, :1], switch, types[centre], types[neighbour])
        layers = self._layers()
        if self._by_segments(vectors):
            atoms = torch.arange(len(types) + 1, device=types.device)
            pointer = torch.searchsorted(centre.contiguous(), atoms)
            return segments.refined_moments(
                self.attention, layers, basis, rows, switch, directions, pointer
            )
        slots = Slots(centre, len(types), self.attention.sel)
        return refined_moments(self.attention, layers, basis, rows, switch, directions, slots)

    def _by_segments(self, vectors: Tensor) -> bool:
        """Return whether to use the kernels of GPUs, which are differentiable once."""
        if self.training or not self.use_kernels or vectors.device.type == "cpu":
            return False
        return is_eager(vectors) and runs_by_segments(self.attention, vectors)

    def _layers(self) -> list[LayerWeights]:
        return [layer.weights() for layer in self.layers]  # type: ignore[operator]

    def _basis(self, s: Tensor, switch: Tensor, own: Tensor, other: Tensor) -> Tensor:
        """Return basis functions (E, M) of the normalised s (E, 1) and the types of both atoms."""
        (network,) = self.embedding.networks()
        table, sides = self.type_embedding, (other,) if self.config.type_one_side else (other, own)
        if self.type_network is None:
            return reference.embedding(torch.cat([s, *(table[t] for t in sides)], dim=1), network)
        factors = self._factors()[self.pair(own, other)]
        if self.config.smooth:
            factors = factors * switch[:, None]
        radial = reference.embedding(s, network)
        return radial * factors + radial

    def pair(self, own: Tensor, other: Tensor) -> Tensor:
        """Return the index of each pair of types, (E,)."""
        return other if self.config.type_one_side else own * len(self.type_embedding) + other

    def _seen(self) -> Tensor:
        """Return the type embeddings of each pair as network inputs, (P, inputs)."""
        table, count = self.type_embedding, len(self.type_embedding)
        if self.config.type_one_side:
            return table
        return torch.cat([table.repeat(count, 1), table.repeat_interleave(count, 0)], dim=1)

    def _factors(self) -> Tensor:
        """Return the factors (P, M) of each pair of types."""
        assert self.type_network is not None
        (types,) = self.type_network.networks()
        return reference.embedding(self._seen(), types)

    def chunked(self, vectors: Tensor) -> bool:
        """Return whether the fused kernels support these edge vectors."""
        # Chunks fit a processor's cache; other devices evaluate all atoms at once, which is not a
        # fallback, so the dispatch is not asked, which would warn that a kernel is missing.
        if not self.use_kernels or vectors.device.type != "cpu" or not is_eager(vectors):
            return False
        reason = self.without_kernels()
        if reason:
            warn_once("neighbour_attention", reason)
            return False
        return available(self.attention, vectors)

    def without_kernels(self) -> str:
        """Return why the kernels do not support this embedding, or ""."""
        if self.embedding.step:
            return "there is no kernel for embedding layers with a time step"
        inputs = len(self.embedding.weight[0][0])
        if inputs > 1 and self.config.embedding[0] in (inputs, 2 * inputs):
            return "there is no kernel for a residual connection over the type embedding"
        return ""

    def fused_fitting(self, widths: Sequence[int]) -> FittingSpec | None:
        """Return the spec of the kernel that computes D and applies the fitting net."""
        if not self.use_kernels:
            return None
        return FittingSpec(self.config.embedding[-1], self.config.axis_neurons, tuple(widths))

    def constant_inputs(self, kind: int) -> Tensor | None:
        """Return the centre's type embedding if it is appended to the descriptor, or None."""
        return self.type_embedding[kind] if self.config.type_output else None

    def chunks(self, graph: Batch, vectors: Tensor) -> SeAttenChunks:
        """Return the moments for inference in chunks of atoms."""
        return SeAttenChunks(self, graph, vectors)

    def kept_moments(self) -> KeptMoments:
        """Return the kernels with packed weights, repacked when a parameter has changed."""
        tensors = [*self.parameters(), self.deviation]
        key = tuple((t.device, t.data_ptr(), t._version) for t in tensors)
        if self._packed is None or self._packed[0] != key:
            self._packed = (key, KeptMoments(self.attention, self.weights()))
        return self._packed[1]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without packed weights."""
        return {**self.__dict__, "_packed": None}

    @torch.no_grad()
    def weights(self) -> Weights:
        """Return the parameters in the layout of the kernels, by pair of types."""
        (network,) = self.embedding.networks()
        (first, bias, step), *others = network
        first_bias, factors = bias[None], None
        if self.type_network is None:
            first_bias = bias + self._seen() @ first[1:]
        else:
            factors = self._factors()
        layers = [(first[:1], bias, step), *others]
        deviation = self.deviation.to(self.dtype)
        return Weights(layers, first_bias, factors, deviation, self._layers())

    def forward(self, values: Tensor, types: Tensor) -> Tensor:
        """Return D, flattened, followed by the type embedding if `type_output`: (n, width)."""
        axis = values[:, : self.config.axis_neurons]
        out = torch.bmm(values, axis.transpose(1, 2)).flatten(1)
        return torch.cat([out, self.type_embedding[types]], 1) if self.config.type_output else out

    def rotation(self, values: Tensor) -> Tensor:
        """Return the direction columns of the moments, (N, M, 3)."""
        return values[:, :, 1:]

    @torch.no_grad()
    def fill_from_tree(self, tree: Tree, where: str) -> None:
        """Set weights and statistics from a `.dp` file.

        Raises:
            DataError: the mean is not zero; deepmd-kit then counts absent neighbours as atoms of
                the type of the frame's first atom.
        """
        self.deviation.copy_(torch.from_numpy(statistics(tree, "dstd", where)))
        fill_attention(self, tree, where)

    def to_tree(self, type_map: Sequence[str], precision: str) -> Tree:
        """Return the tree of a `.dp` file."""
        config, sel = self.config, self.spec.sel[0]
        deviation = repeated(self.deviation, sel)
        return {
            **common_tree(config, [sel], type_map, precision),
            **attention_tree(self, type_map, precision),
            "@variables": {"davg": np.zeros_like(deviation), "dstd": deviation},
        }


class SeAttenChunks:
    """Moments of chunks of atoms; see `ChunkedMoments`."""

    chunk = CHUNK

    def __init__(self, descriptor: SeAttenDescriptor, graph: Batch, vectors: Tensor) -> None:
        part, included, _ = without_excluded(graph, descriptor.config.exclude_types)
        types, segments = graph["types"], part["segments"]
        centre, neighbour = part["edge_index"]
        self._all, self._kept, self._kernels = vectors, included, descriptor.kept_moments()
        near = vectors if included is None else vectors[included]
        self._edges = Neighbours(
            segments[:: len(descriptor.type_embedding)].contiguous(),
            types,
            descriptor.pair(types[centre], types[neighbour]),
            near.contiguous(),
        )
        self._slopes = torch.empty_like(near)
        self._atoms: KeptAtoms | None = None

    def values(self, atoms: Tensor, kind: int) -> Tensor:
        """Return the moments (n, M, 4) of atoms (n,)."""
        self._atoms = self._kernels.of(self._edges, atoms)
        return self._atoms.moments()

    def add_slopes(self, atoms: Tensor, cotangent: Tensor) -> None:
        """Write dE/d(edge vector) of the edges of these atoms."""
        assert self._atoms is not None
        self._atoms.slopes(cotangent, self._slopes)

    def slopes(self) -> Tensor:
        """Return dE/d(edge vector), (E, 3); zero for edges between excluded types."""
        if self._kept is None:
            return self._slopes
        out = torch.zeros_like(self._all)
        out[self._kept] = self._slopes
        return out

"""se_atten: the descriptor of DPA-1, embeddings of types with gated self-attention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.ops.environment_matrix import EnvironmentSpec, reference
from scitoolkit.potentials.deepmd.descriptors.attention_layer import AttentionLayer, Slots
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


class SeAttenDescriptor(Descriptor):
    """D = T T'^T as of se_e2_a, of basis functions that attention has refined.

    Source: Zhang et al., DPA-1, npj Computational Materials 10, 94 (2024), arXiv 2208.08236.
    """

    width: int

    def __init__(
        self, config: SeAttenDescriptorConfig, num_types: int, generator: torch.Generator,
        dtype: torch.dtype,
    ) -> None:  # fmt: skip
        super().__init__()
        assert not isinstance(config.sel, str)
        check_pairs(config.exclude_types, num_types)
        self.config: SeAttenDescriptorConfig = config
        self.dtype = dtype
        self.cutoff: float = config.cutoff
        # Only the sum of `sel` matters to the statistics.
        places = (config.sel, *([0] * (num_types - 1)))
        self.spec: EnvironmentSpec = EnvironmentSpec(
            config.cutoff, config.cutoff_smooth, places, tuple(config.embedding)
        )
        values = torch.randn(num_types, config.type_width, generator=generator, dtype=torch.float64)
        scale = (num_types + config.type_width) ** -0.5
        self.type_embedding: nn.Parameter = nn.Parameter((values * scale).to(dtype))
        seen = config.type_width * (1 if config.type_one_side else 2)
        stripped = config.type_input == "strip"

        def network(inputs: int) -> StackedNetworks:
            return StackedNetworks(
                1, inputs, config.embedding, resnet_dt=config.embedding_resnet_dt,
                linear_output=False, generator=generator, dtype=dtype,
            )  # fmt: skip

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
        """Measure the deviation of the environments about zero, as deepmd-kit does."""
        pairs = self.config.exclude_types
        _, deviation = environment_statistics(
            self.spec, [without_excluded(graph, pairs)[0] for graph in graphs]
        )
        with torch.no_grad():
            self.deviation.copy_(deviation)

    def values(self, graph: Batch, vectors: Tensor) -> Tensor:
        """Return the moments of the refined basis functions, (N, M, 4)."""
        part, kept, _ = without_excluded(graph, self.config.exclude_types)
        near = vectors if kept is None else vectors[kept]
        return self._moments(graph["types"], part["edge_index"], near)

    def _moments(self, types: Tensor, edges: Tensor, vectors: Tensor) -> Tensor:
        config, (centre, neighbour) = self.config, edges
        distance = vectors.norm(dim=1)
        switch = reference.switch(distance, config.cutoff_smooth, config.cutoff)
        rows = reference.environment_rows(self.spec, vectors)
        rows = rows / self.deviation.to(self.dtype)[types[centre]]
        basis = self._basis(rows[:, :1], switch, types[centre], types[neighbour])
        slots = Slots(centre, len(types), self.spec.sel[0])
        if self.layers:
            directions = slots.spread(vectors / distance[:, None])
            cosines = None
            if config.angular_gate:
                cosines = torch.bmm(directions, directions.transpose(1, 2))
            fade = slots.spread(switch)
            for layer in self.layers:
                basis = layer(basis, fade, cosines, slots)
        # As products of small matrices: (E, M, 4) is never written.
        total = torch.bmm(slots.spread(basis).transpose(1, 2), slots.spread(rows))
        return total / self.spec.sel[0]

    def _basis(self, s: Tensor, switch: Tensor, own: Tensor, other: Tensor) -> Tensor:
        """Return (E, M) of the normalised s (E, 1) and the types of both atoms."""
        (network,) = self.embedding.networks()
        table, sides = self.type_embedding, (other,) if self.config.type_one_side else (other, own)
        if self.type_network is None:
            return reference.embedding(torch.cat([s, *(table[t] for t in sides)], dim=1), network)
        (types,) = self.type_network.networks()
        count = len(table)
        if self.config.type_one_side:
            factors = reference.embedding(table, types)[other]
        else:
            pairs = torch.cat([table.repeat(count, 1), table.repeat_interleave(count, 0)], dim=1)
            factors = reference.embedding(pairs, types)[own * count + other]
        if self.config.smooth:
            factors = factors * switch[:, None]
        radial = reference.embedding(s, network)
        return radial * factors + radial

    def forward(self, values: Tensor, types: Tensor) -> Tensor:
        """Return D, flattened, with the type's embedding after it."""
        axis = values[:, : self.config.axis_neurons]
        out = torch.bmm(values, axis.transpose(1, 2)).flatten(1)
        return torch.cat([out, self.type_embedding[types]], 1) if self.config.type_output else out

    def rotation(self, values: Tensor) -> Tensor:
        """Return the moments of the directions, (N, M, 3)."""
        return values[:, :, 1:]

    @torch.no_grad()
    def fill_from_tree(self, tree: Tree, where: str) -> None:
        """Set weights and statistics from a `.dp` file.

        Raises:
            DataError: a mean that is not zero: there deepmd-kit counts absent neighbours as atoms
                of the type of the frame's first atom.
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

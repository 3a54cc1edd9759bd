"""The attention descriptor of DPA-1 (se_atten): embeddings of types, gated self-attention.

Written in plain torch. The attention matrices are (N, most neighbours, most neighbours) for each
layer, so that large systems want more memory than the other descriptors do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from scitoolkit.core.config import Config
from scitoolkit.core.contracts import Batch
from scitoolkit.ops.environment_matrix import EnvironmentSpec, reference
from scitoolkit.potentials.descriptors import (
    Descriptor,
    Moments,
    Steps,
    TypePair,
    check_pairs,
    kept_edges,
    pull_by_autograd,
)
from scitoolkit.potentials.graph import edge_vectors, without_edges
from scitoolkit.potentials.networks import StackedNetworks
from scitoolkit.potentials.statistics import environment_statistics

LOGIT_SHIFT = 20.0  # deepmd-kit's: a neighbour at the cutoff has the logit -20


class AttentionDescriptorConfig(Config):
    """DPA-1's descriptor; names in brackets are those of deepmd-kit's input.json.

    The mean of the environments is zero [set_davg_zero, its default].

    Attributes:
        cutoff: Å [rcut].
        cutoff_smooth: Å, where the switch begins [rcut_smth].
        sel: most neighbours of all types together; `auto` counts them.
        embedding: widths [neuron].
        axis_neurons: second factor of the descriptor [axis_neuron].
        one_side: whether the embedding ignores the centre's type [type_one_side].
        embedding_step: layers of the embedding with a step [resnet_dt].
        type_width: of the types' embedding [tebd_dim].
        type_input: `concat` puts it beside the distance before the embedding network, `strip`
            gives it a network of its own, whose output multiplies [tebd_input_mode].
        type_output: whether the centre's embedding follows the descriptor [concat_output_tebd].
        attention_layers: number of them, 0 for none [attn_layer].
        attention_width: of queries, keys and values [attn].
        angular_gate: multiply the attention by cosines between neighbours [attn_dotr].
        normalize: queries, keys and values have length 1 [normalize].
        smooth: attention fades towards the cutoff; without it an atom that crosses the cutoff
            makes a jump [smooth_type_embedding].
        scaling: attention logits are divided by the root of width times this [scaling_factor].
        temperature: multiplies the logits instead, where it is given [temperature].
        norm_epsilon: of the layers' normalisation [ln_eps].
        exclude_types: pairs of types (places in the type map) that do not see each other.
    """

    name: Literal["se_atten"] = "se_atten"
    cutoff: PositiveFloat = 6.0
    cutoff_smooth: float = Field(default=0.5, ge=0)
    sel: PositiveInt | Literal["auto"] = "auto"
    embedding: list[PositiveInt] = Field(default=[25, 50, 100], min_length=1)
    axis_neurons: PositiveInt = 16
    one_side: bool = False
    embedding_step: Steps = "none"
    type_width: PositiveInt = 8
    type_input: Literal["concat", "strip"] = "concat"
    type_output: bool = True
    attention_layers: int = Field(default=2, ge=0)
    attention_width: PositiveInt = 128
    angular_gate: bool = True
    normalize: bool = True
    smooth: bool = True
    scaling: PositiveFloat = 1.0
    temperature: float | None = None
    norm_epsilon: PositiveFloat = 1e-5
    exclude_types: list[TypePair] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fits(self) -> AttentionDescriptorConfig:
        if self.cutoff_smooth >= self.cutoff:
            raise ValueError(f"cutoff_smooth {self.cutoff_smooth} must be below {self.cutoff}")
        if self.axis_neurons > self.embedding[-1]:
            raise ValueError(f"axis_neurons {self.axis_neurons} exceed the last embedding width")
        return self

    def with_sel(self, most: Sequence[int]) -> AttentionDescriptorConfig:
        """Return the configuration with `sel` filled in, the sum over types."""
        return self.model_copy(update={"sel": sum(most)})

    def build(
        self, num_types: int, generator: torch.Generator, dtype: torch.dtype
    ) -> AttentionDescriptor:
        """Return the descriptor with initial weights."""
        return AttentionDescriptor(self, num_types, generator, dtype)


class AttentionLayer(nn.Module):
    """Gated self-attention among the neighbours of an atom, added, and normalised."""

    def __init__(
        self, config: AttentionDescriptorConfig, generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        super().__init__()
        width, hidden = config.embedding[-1], config.attention_width
        self.config = config

        def normal(fan_in: int, fan_out: int) -> nn.Parameter:
            values = torch.randn(fan_in, fan_out, generator=generator, dtype=torch.float64)
            return nn.Parameter((values * (fan_in + fan_out) ** -0.5).to(dtype))

        self.project, self.mix = normal(width, 3 * hidden), normal(hidden, width)
        self.project_bias = nn.Parameter(torch.zeros(3 * hidden, dtype=dtype))
        self.mix_bias = nn.Parameter(torch.zeros(width, dtype=dtype))
        self.norm_weight = nn.Parameter(torch.ones(width, dtype=dtype))
        self.norm_bias = nn.Parameter(torch.zeros(width, dtype=dtype))

    def forward(self, basis: Tensor, fade: Tensor, cosines: Tensor | None, slots: Slots) -> Tensor:
        """Return the new basis functions (E, M).

        Args:
            basis: (E, M).
            fade: (N, K) switch of each neighbour, 0 where there is none.
            cosines: (N, K, K) between the directions of neighbours.
            slots: where edges lie in (N, K).
        """
        config = self.config
        parts = (basis @ self.project + self.project_bias).chunk(3, dim=1)
        if config.normalize:
            parts = tuple(part / part.norm(dim=1, keepdim=True) for part in parts)
        query, key, value = (slots.spread(part) for part in parts)
        scale = config.temperature
        if scale is None:
            scale = (config.attention_width * config.scaling) ** -0.5
        logits = torch.bmm(query * scale, key.transpose(1, 2))
        if config.smooth:
            pair = fade[:, :, None] * fade[:, None, :]
            logits = (logits + LOGIT_SHIFT) * pair - LOGIT_SHIFT
            # Absent neighbours, up to `sel`, take part with the logit of one at the cutoff.
            least = logits.detach().amax(2, keepdim=True).clamp_min(-LOGIT_SHIFT)
            powers = (logits - least).exp()
            absent = torch.exp(-LOGIT_SHIFT - least) * slots.absent
            weights = powers / (powers.sum(2, keepdim=True) + absent) * pair
        else:
            there = slots.present.to(logits.dtype)
            weights = logits.masked_fill(~slots.present[:, None, :], -torch.inf)
            weights = weights.masked_fill(~slots.present.any(1)[:, None, None], 0.0)
            weights = weights.softmax(2) * there[:, :, None] * there[:, None, :]
        if cosines is not None:
            weights = weights * cosines
        out = slots.gather(torch.bmm(weights, value)) @ self.mix + self.mix_bias
        return nn.functional.layer_norm(
            basis + out, basis.shape[1:], self.norm_weight, self.norm_bias, config.norm_epsilon
        )


class Slots:
    """Edges (E,), sorted by atom, as places (N, K) of a table of the most neighbours.

    Attributes:
        present: (N, K) whether there is an edge.
        absent: `sel` less K.
    """

    def __init__(self, centre: Tensor, num_atoms: int, sel: int) -> None:
        counts = torch.bincount(centre, minlength=num_atoms)
        most = int(counts.max().clamp_min(1))
        place = (
            torch.arange(len(centre), device=centre.device) - (counts.cumsum(0) - counts)[centre]
        )
        self._flat, self._shape = centre * most + place, (num_atoms, most)
        self.present = torch.arange(most, device=centre.device) < counts[:, None]
        self.absent = sel - most

    def spread(self, values: Tensor) -> Tensor:
        """Return (N, K, ...) of (E, ...), zero where there is no edge."""
        room = values.new_zeros(self._shape[0] * self._shape[1], *values.shape[1:])
        return room.index_add(0, self._flat, values).view(*self._shape, *values.shape[1:])

    def gather(self, values: Tensor) -> Tensor:
        """Return (E, ...) of (N, K, ...)."""
        return values.flatten(0, 1)[self._flat]


class AttentionDescriptor(Descriptor):
    """D = T T'^T as of se_e2_a, of basis functions that attention has refined.

    Source: Zhang et al., DPA-1, npj Computational Materials 10, 94 (2024), arXiv 2208.08236.
    """

    def __init__(
        self, config: AttentionDescriptorConfig, num_types: int, generator: torch.Generator,
        dtype: torch.dtype,
    ) -> None:  # fmt: skip
        super().__init__()
        assert not isinstance(config.sel, str)
        check_pairs(config.exclude_types, num_types)
        self.config, self.dtype, self.cutoff = config, dtype, config.cutoff
        # Only the sum of `sel` matters to the statistics.
        places = (config.sel, *([0] * (num_types - 1)))
        self.spec = EnvironmentSpec(
            config.cutoff, config.cutoff_smooth, places, tuple(config.embedding)
        )
        values = torch.randn(num_types, config.type_width, generator=generator, dtype=torch.float64)
        scale = (num_types + config.type_width) ** -0.5
        self.type_embedding = nn.Parameter((values * scale).to(dtype))
        seen = config.type_width * (1 if config.one_side else 2)
        stripped = config.type_input == "strip"

        def network(inputs: int) -> StackedNetworks:
            return StackedNetworks(
                1, inputs, config.embedding, step=config.embedding_step, linear_output=False,
                generator=generator, dtype=dtype,
            )  # fmt: skip

        self.embedding = network(1 if stripped else 1 + seen)
        self.type_network = network(seen) if stripped else None
        self.layers = nn.ModuleList(
            AttentionLayer(config, generator, dtype) for _ in range(config.attention_layers)
        )
        self.vectors = config.embedding[-1]
        self.width = self.vectors * config.axis_neurons
        self.width += config.type_width if config.type_output else 0
        self.deviation: Tensor
        self.register_buffer("deviation", torch.ones(num_types, 4, dtype=torch.float64))

    def fit_statistics(self, graphs: Iterable[Batch]) -> None:
        """Measure the deviation of the environments about zero's mean as deepmd-kit does."""
        seen = []
        for graph in graphs:
            kept, _ = kept_edges(graph, edge_vectors(graph), self.cutoff, self.config.exclude_types)
            seen.append(graph if kept is None else without_edges(graph, kept))
        _, deviation = environment_statistics(self.spec, seen)
        with torch.no_grad():
            self.deviation.copy_(deviation)

    def moments(self, graph: Batch, vectors: Tensor) -> Moments:
        """Return the moments of the refined basis functions."""
        kept, _ = kept_edges(graph, vectors, self.cutoff, self.config.exclude_types)
        edges = graph["edge_index"] if kept is None else graph["edge_index"][:, kept]
        leaf = vectors.detach().requires_grad_()
        values = self._moments(graph["types"], edges, leaf if kept is None else leaf[kept])
        return Moments(values, pull_by_autograd(values, leaf, self.training))

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
        table, sides = self.type_embedding, (other,) if self.config.one_side else (other, own)
        if self.type_network is None:
            return reference.embedding(torch.cat([s, *(table[t] for t in sides)], dim=1), network)
        (types,) = self.type_network.networks()
        count = len(table)
        if self.config.one_side:
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

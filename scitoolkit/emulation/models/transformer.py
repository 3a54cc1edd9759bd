"""Transformer for fields: attention between patches of a grid, at one resolution.

Letters: B sample, then the space dims of patches, then H head and D values of a head. In a
periodic dim of n patches, positions rotate pairs of values by 2 pi m i / n with whole m, so that
attention is equivariant to shifts by whole patches (rotary positions, Su et al. 2021,
arXiv:2104.09864). Attention and the gated layer run in parallel, with one matrix product in and one
out, and queries and keys are normalised (Dehghani et al. 2023, arXiv:2302.05442). Where processes
have slabs of the patches, each attends with a share of the heads between all patches of a head,
which it receives by all-to-all (Jacobs et al. 2023, arXiv:2309.14509).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.models.layers import (
    Conv,
    Padding,
    channels_to_space,
    resize,
    space_to_channels,
    to_whole_patches,
)
from scitoolkit.emulation.models.padding import SharedDim, kind_of
from scitoolkit.training.strategies.mesh.division import (
    Division,
    JointLinear,
    Stage,
    SummedLinear,
)
from scitoolkit.training.strategies.mesh.experts import ExpertLayer


class FieldTransformer(nn.Module):
    """Transformer between patches of `patch` cells per dim.

    Args:
        inputs: input channels.
        outputs: output channels.
        padding: one entry per space dim.
        width: values of a patch, a multiple of the heads.
        blocks: number of blocks.
        heads: number of attention heads; with axial attention a multiple of the space dims.
        patch: cells per dim that are merged into a patch.
        ratio: hidden values of the gated layer over the width.
        attention: full, between all patches, or axial, of each head along one dim.
        experts: gated layers of a block, of which a patch chooses some; 1 for one of all patches.
        chosen: experts that compute a patch, if there are several.
        conditioning: size of the condition that scales and shifts the input of blocks; 0 for none.

    Raises:
        ConfigError: the width or the heads do not divide as described or among the processes of a
            dim, or more experts are chosen than there are.

    Example:
        >>> net = FieldTransformer(3, 2, ["circular", "zeros"], width=16, heads=2, blocks=1)
        >>> net(torch.zeros(1, 3, 12, 9)).shape
        torch.Size([1, 2, 12, 9])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        padding: Sequence[Padding],
        *,
        width: int = 128,
        blocks: int = 6,
        heads: int = 4,
        patch: int = 4,
        ratio: int = 2,
        attention: str = "full",
        experts: int = 1,
        chosen: int = 2,
        conditioning: int = 0,
    ) -> None:
        super().__init__()
        dims = len(padding)
        shared = {i: p for i, p in enumerate(padding) if isinstance(p, SharedDim)}
        for part in shared.values():
            if (heads // dims if attention == "axial" else heads) % part.size:
                raise ConfigError(
                    f"{heads} heads on {part.size} processes that divide a dim",
                    where="model.heads",
                    allowed=f"multiples of {part.size * (dims if attention == 'axial' else 1)}",
                )
        if width % (2 * heads) or (attention == "axial" and heads % dims):
            raise ConfigError(
                f"{heads} heads of a width of {width} in {dims} dims",
                where="model.heads",
                allowed="a width that is a multiple of 2 heads; for axial attention a multiple of "
                "the dims",
            )
        if 1 < experts < chosen:
            raise ConfigError(
                f"{chosen} chosen experts of {experts}",
                where="model.chosen",
                allowed=f"1 to {experts}",
            )
        mixture = (experts, chosen) if experts > 1 else None
        self.patch, self.head, self.dims = patch, width // heads, dims
        self.axial: bool = attention == "axial"
        self.periodic: list[bool] = [kind_of(p) == "circular" for p in padding]
        self.shared: dict[int, SharedDim] = shared
        cells = patch**dims
        self.stem: Conv = Conv(inputs * cells, width, padding)
        self.blocks: nn.ModuleList = nn.ModuleList(
            AttentionBlock(
                width, heads, ratio, conditioning, axial=self.axial, mixture=mixture, shared=shared
            )
            for _ in range(blocks)
        )
        self.norm: nn.RMSNorm = nn.RMSNorm(width)
        self.merge: Conv = Conv(width, outputs * cells, padding)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, outputs, *space) from (B, inputs, *space) and (B, conditioning)."""
        h = self._first(x, x, condition)
        for block in self.blocks:
            h = block(h, self._angles(h), condition)
        return self._last(h, x, condition)

    def division(self) -> dict[str, Division]:
        """Return the division of the blocks' heads and hidden values."""
        # Heads take the dims in turn, so that each process needs as many of each.
        unit = self.head * (self.dims if self.axial else 1)
        return {
            "blocks.*.into": Division(outputs="y", unit=unit),
            "blocks.*.out": Division(inputs="y", unit=unit),
            "blocks.*.[qk]_norm": Division(partial="y"),
        }

    def stages(self) -> list[Stage]:
        """Return the stem, the blocks and the head."""

        def block(i: int) -> Stage:
            layer = self.blocks[i]
            return Stage((f"blocks.{i}",), lambda h, x, c: layer(h, self._angles(h), c))

        inner = [block(i) for i in range(len(self.blocks))]
        return [
            Stage(("stem",), self._first, 0.5),
            *inner,
            Stage(("norm", "merge"), self._last, 0.5),
        ]

    def _first(self, h: Tensor, x: Tensor, condition: Tensor | None) -> Tensor:
        whole = to_whole_patches(x, self.patch)
        return self.stem(space_to_channels(whole, self.patch)).movedim(1, -1)

    def _last(self, h: Tensor, x: Tensor, condition: Tensor | None) -> Tensor:
        fields = self.merge(self.norm(h).movedim(-1, 1))
        return resize(channels_to_space(fields, self.patch), x.shape[2:])

    def _angles(self, h: Tensor) -> Tensor:
        """Return the angles (*space, D / 2) by which positions rotate pairs of values."""
        pairs, space = self.head // 2, h.shape[1:-1]
        parts = []
        for i, (n, wraps) in enumerate(zip(space, self.periodic, strict=True)):
            many = pairs // self.dims + (i < pairs % self.dims)
            places = torch.arange(n, dtype=h.dtype, device=h.device)
            if i in self.shared:  # places count from the start of the whole dim
                places, n = places + self.shared[i].rank * n, n * self.shared[i].size
            steps = torch.arange(many, dtype=h.dtype, device=h.device)
            if wraps:
                # Whole waves in the period; those above n / 2 equal slower ones at the patches,
                # hence the remainder.
                waves = 2 * math.pi / n * (1 + steps % max(n // 2, 1))
            else:
                # From half a turn over the whole dim to half a turn between neighbours.
                waves = math.pi * n ** (steps / max(many - 1, 1) - 1)
            shape = [len(places) if dim == i else 1 for dim in range(self.dims)]
            parts.append((places[:, None] * waves).view(*shape, many).expand(*space, many))
        return torch.cat(parts, -1)


class AttentionBlock(nn.Module):
    """``x + scale * out(attention(q, k, v), silu(g) * u)`` of the normalised input.

    Args:
        width: values of a patch.
        heads: number of attention heads.
        ratio: hidden values of the gated layer over the width.
        conditioning: size of the condition; 0 for none.
        axial: whether head i attends along dim i modulo the number of dims only.
        mixture: experts and how many of them a patch chooses, instead of one gated layer.
        shared: {dim: processes that divide it}.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        ratio: int,
        conditioning: int,
        *,
        axial: bool,
        mixture: tuple[int, int] | None = None,
        shared: Mapping[int, SharedDim] | None = None,
    ) -> None:
        super().__init__()
        self.head, self.axial, self.shared = width // heads, axial, dict(shared or {})
        hidden = ratio * width
        self.norm: nn.RMSNorm = nn.RMSNorm(width)
        # Without biases: softmax ignores that of the keys, which would have no gradient.
        gated = [] if mixture else [hidden]
        self.into: JointLinear = JointLinear(width, [width] * 3 + 2 * gated, bias=False)
        self.q_norm: nn.RMSNorm = nn.RMSNorm(self.head)
        self.k_norm: nn.RMSNorm = nn.RMSNorm(self.head)
        self.out: SummedLinear = SummedLinear([width, *gated], width)
        self.mixture: ExpertLayer | None = None
        if mixture is not None:
            self.mixture = ExpertLayer(width, hidden, experts=mixture[0], chosen=mixture[1])
        # Small, so that a deep network begins near the identity.
        self.scale: nn.Parameter = nn.Parameter(torch.full((width,), 0.1))
        self.modulation: nn.Linear | None = None
        if conditioning:
            self.modulation = nn.Linear(conditioning, 3 * width)
            # Zero: training begins as without a condition (adaLN-zero, Peebles and Xie 2023,
            # arXiv:2212.09748).
            nn.init.zeros_(self.modulation.weight)
            nn.init.zeros_(self.modulation.bias)

    def forward(self, x: Tensor, angles: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return (B, *space, width) from `x` of that shape and angles (*space, D / 2)."""
        h, scale = self.norm(x), self.scale
        if self.modulation is not None and condition is not None:
            values = self.modulation(condition).view(len(x), *[1] * (x.ndim - 2), -1)
            shift, gain, more = values.chunk(3, -1)
            h, scale = h * (1 + gain) + shift, scale * (1 + more)
        q, k, v, *gated = self.into(h)
        q, k, v = (t.unflatten(-1, (-1, self.head)).movedim(-2, 1) for t in (q, k, v))
        q, k = rotated(self.q_norm(q), angles), rotated(self.k_norm(k), angles)
        attended = self._attended(q, k, v).movedim(1, -2).flatten(-2)
        if self.mixture is not None:
            return x + scale * (self.out(attended) + self.mixture(h))
        gate, hidden = gated
        return x + scale * self.out(attended, functional.silu(gate) * hidden)

    def _attended(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return (B, H, *space, D) from three tensors of that shape."""
        attention = functional.scaled_dot_product_attention
        if not self.axial:
            whole = self._with_all_patches([q, k, v], self.shared)
            flat = [t.flatten(2, -2) for t in whole]
            attended = attention(flat[0], flat[1], flat[2]).view_as(whole[0])
            return self._with_all_heads(attended, self.shared)
        dims = q.ndim - 3
        parts = []
        for dim in range(dims):
            own = {i: part for i, part in self.shared.items() if i == dim}
            # Heads take the dims in turn: each attends along one dim only, so that the cost grows
            # with the length of lines and not with the number of patches.
            whole = self._with_all_patches([t[:, dim::dims] for t in (q, k, v)], own)
            lines = [t.movedim(dim + 2, -2) for t in whole]
            attended = attention(lines[0], lines[1], lines[2]).movedim(-2, dim + 2)
            parts.append(self._with_all_heads(attended, own))
        # Back into the order in which the heads took the dims.
        return torch.stack(parts, 2).flatten(1, 2)

    @staticmethod
    def _with_all_patches(tensors: list[Tensor], shared: Mapping[int, SharedDim]) -> list[Tensor]:
        """Return tensors (B, H, *space, D) of all patches along divided dims and fewer heads."""
        for dim, part in shared.items():
            tensors = [part.swap(t, dim + 2, 1) for t in tensors]
        return tensors

    @staticmethod
    def _with_all_heads(attended: Tensor, shared: Mapping[int, SharedDim]) -> Tensor:
        """Undo `_with_all_patches`."""
        for dim, part in shared.items():
            attended = part.swap(attended, 1, dim + 2)
        return attended


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate pairs of values (..., *space, D) by angles (*space, D / 2).

    Example:
        >>> rotated(torch.tensor([[1.0, 0.0]]), torch.tensor([[math.pi / 2]])).round().tolist()
        [[-0.0, 1.0]]
    """
    one, two = x.chunk(2, -1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([one * cosine - two * sine, one * sine + two * cosine], -1)

"""MeshfreeFlowNet: from low-resolution fields to a continuous field with its derivatives.

Source: Jiang et al., "MeshfreeFlowNet: a physics-constrained deep continuous space-time
super-resolution framework", SC20, doi:10.1109/SC41405.2020.00013. The decoder's output is added to
a cubic interpolation of the low-resolution values at the latent nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scitoolkit.ops import taylor
from scitoolkit.superresolution.blend import Weights, blend, gather, locate
from scitoolkit.superresolution.convolution import resample
from scitoolkit.superresolution.decoder import Decoder
from scitoolkit.superresolution.encoder import Encoder
from scitoolkit.superresolution.resunet import ResidualUNet

_VALUES_AT_ONCE = 2**21
"""Largest number of values of the widest layer in a block of queries, over all streams and corners:
larger blocks exceed the caches, and their memory is returned to the system after each operation."""
_LEAST_POINTS = 16


@dataclass(frozen=True)
class LatentGrid:
    """Latent vectors and their nodes.

    Attributes:
        vectors: (B, C + fields, nodes...); the last channels are interpolated field values.
        nodes: (B, n) physical coordinates of each dim.
    """

    vectors: Tensor
    nodes: tuple[Tensor, ...]


class MeshfreeFlowNet(nn.Module):
    """Continuous super-resolution model in 1 to 4 dims.

    Args:
        encoder: from fields and coordinate channels to latent vectors.
        decoder: from relative coordinates and a latent vector to fields.
        periods: length of each periodic dim, None for others.
        extents: (low, high) of the training domain of each dim with a coordinate channel, None for
            others.
        spacings: distance of the low-resolution nodes along each dim whose distance varies, from
            which a channel with log2 of the ratio is made; None for others.
        mean: (fields,) of the training data, physical units.
        std: (fields,) likewise.
        weights: blending of the corners of a cell.
        interpolate: add the decoder's output to interpolated values.
    """

    value_plan: taylor.Plan

    mean: Tensor
    std: Tensor
    steps_seen: Tensor
    """Training steps during the warm-up of the residual weight; a buffer, so that it is saved."""

    def __init__(
        self,
        encoder: Encoder | ResidualUNet,
        decoder: Decoder,
        *,
        periods: Sequence[float | None],
        extents: Sequence[tuple[float, float] | None],
        spacings: Sequence[float | None] = (),
        mean: Tensor,
        std: Tensor,
        weights: Weights = "linear",
        interpolate: bool = True,
    ) -> None:
        super().__init__()
        self.encoder: Encoder | ResidualUNet = encoder
        self.decoder: Decoder = decoder
        self.periods: tuple[float | None, ...] = tuple(periods)
        self.extents: tuple[tuple[float, float] | None, ...] = tuple(extents)
        self.spacings: tuple[float | None, ...] = tuple(spacings)
        self.weights: Weights = weights
        self.interpolate = interpolate
        self.register_buffer("mean", mean.float())
        self.register_buffer("std", std.float())
        self.register_buffer("steps_seen", torch.zeros((), dtype=torch.float64))
        self.value_plan = taylor.make_plan(len(self.periods), [])

    def encode(self, low: Tensor, nodes: Sequence[Tensor]) -> LatentGrid:
        """Return the latent grid of low-resolution fields.

        Args:
            low: (B, fields, n1, ..., nd), physical units.
            nodes: (B, n) coordinates of the low-resolution nodes of each dim.
        """
        shape = (1, -1, *[1] * len(self.periods))
        scaled = (low - self.mean.view(shape)) / self.std.view(shape)
        inputs = torch.cat([scaled, *self._coordinate_channels(scaled, nodes)], 1)
        vectors = self.encoder(inputs)
        periodic = [p is not None for p in self.periods]
        values = scaled
        for factors in self.encoder.factors:
            values = resample(values, factors, periodic, cubic=True)
        if not self.interpolate:
            values = torch.zeros_like(values)
        return LatentGrid(torch.cat([vectors, values], 1), self.fine_nodes(nodes))

    def fine_nodes(self, nodes: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the coordinates of the latent grid from those of the low-resolution nodes."""
        fine = tuple(nodes)
        for factors in self.encoder.factors:
            fine = tuple(
                refine_nodes(n, f, p) for n, f, p in zip(fine, factors, self.periods, strict=True)
            )
        return fine

    def _coordinate_channels(self, x: Tensor, nodes: Sequence[Tensor]) -> list[Tensor]:
        """Return coordinates of dims with an extent, in [-1, 1], and log2 of relative spacings."""
        channels = []
        for dim, (extent, along) in enumerate(zip(self.extents, nodes, strict=True)):
            if extent is not None:
                low, high = extent
                scaled = (2 * along - low - high) / (high - low)
                shape = [len(along), 1, *[1] * len(self.periods)]
                shape[dim + 2] = along.shape[1]
                channels.append(scaled.to(x.dtype).view(shape).expand(-1, -1, *x.shape[2:]))
        for dim, spacing in enumerate(self.spacings):
            if spacing is not None:
                along = nodes[dim]
                ratio = (along[:, -1] - along[:, 0]) / ((along.shape[1] - 1) * spacing)
                shape = [len(along), 1, *[1] * len(self.periods)]
                channels.append(ratio.log2().to(x.dtype).view(shape).expand(-1, -1, *x.shape[2:]))
        return channels

    def query(self, grid: LatentGrid, points: Tensor, plan: taylor.Plan | None = None) -> Tensor:
        """Return field values and derivatives in physical units at arbitrary points.

        Args:
            grid: from `encode`.
            points: (B, N, d) physical coordinates.
            plan: which derivatives; None for values only.

        Returns:
            (streams, B, N, fields).
        """
        plan = plan or self.value_plan
        values_per_point = len(plan) * 2 ** len(self.periods) * self.decoder.width * len(points)
        blocks = points.split(max(_LEAST_POINTS, _VALUES_AT_ONCE // values_per_point), 1)
        parts = [self._query_block(grid, block, plan) for block in blocks]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)

    def _query_block(self, grid: LatentGrid, points: Tensor, plan: taylor.Plan) -> Tensor:
        where = [
            locate(points[..., d].contiguous(), grid.nodes[d], self.periods[d])
            for d in range(len(self.periods))
        ]
        vectors, offsets, scales = gather(grid.vectors, where)
        fields = len(self.mean)
        decoded = self.decoder(offsets, vectors[..., :-fields], plan, scales)
        # The interpolated values at a corner are constants of its cell: they enter the value, and
        # their derivatives come from the weights of the corners in `blend`.
        decoded = taylor.add_to_value(decoded, vectors[..., -fields:])
        out = blend(decoded, where, plan, self.weights) * self.std
        return taylor.add_to_value(out, self.mean)

    def forward(
        self,
        low: Tensor,
        nodes: Sequence[Tensor],
        points: Tensor,
        plan: taylor.Plan | None = None,
        more_points: Tensor | None = None,
        more_plan: taylor.Plan | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return `query` after `encode`, for one or two sets of points."""
        grid = self.encode(low, nodes)
        values = self.query(grid, points, plan)
        if more_points is None:
            return values
        return values, self.query(grid, more_points, more_plan)


def refine_nodes(nodes: Tensor, factor: int, period: float | None) -> Tensor:
    """Return nodes (B, n) refined by `factor` equal steps per cell, as in `resample`."""
    if period is not None:
        ends = torch.cat([nodes, nodes[:, :1] + period], 1)
    else:
        ends = nodes
    steps = torch.arange(factor, dtype=nodes.dtype, device=nodes.device) / factor
    inner = ends[:, :-1, None] + (ends[:, 1:] - ends[:, :-1])[..., None] * steps
    inner = inner.flatten(1)
    return inner if period is not None else torch.cat([inner, nodes[:, -1:]], 1)

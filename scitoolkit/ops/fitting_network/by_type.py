"""Networks of every atom's type in batched matrix products, for devices other than the CPU.

The atoms are sorted by type into tiles of equal size, of which each has one network. All sizes
follow from the numbers of atoms and types, so that nothing waits for the device; on a CPU a loop
over the types is as fast and needs no padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.ops.fitting_network.spec import SAME, TWICE, shortcut

SMALLEST_TILE, LARGEST_TILE = 16, 1024  # atoms
TILES_PER_TYPE = 4  # more would copy the weights more often, fewer would pad more rows


@dataclass(frozen=True, eq=False)
class TypeTiles:
    """Atoms sorted by type into tiles of one type each.

    Attributes:
        place: (N,) int64, row of each atom in the table of all tiles.
        of_type: (tiles, types), 1 where a tile has atoms of a type, in the dtype of the weights.
        size: rows of a tile.

    Example:
        >>> tiles = TypeTiles.build(torch.tensor([1, 0, 1]), 2, torch.float32)
        >>> tiles.place.tolist(), tiles.size, tiles.of_type.tolist()
        ([16, 0, 17], 16, [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    """

    place: Tensor
    of_type: Tensor
    size: int

    @classmethod
    def build(cls, types: Tensor, num_types: int, dtype: torch.dtype) -> TypeTiles:
        """Return the tiles of atoms of types (N,), int64, below `num_types`."""
        atoms, device = len(types), types.device
        wanted = 1 << max(atoms // (TILES_PER_TYPE * num_types), 1).bit_length() - 1
        size = min(max(wanted, SMALLEST_TILE), LARGEST_TILE)
        numbers = torch.arange(num_types, device=device)
        counts = (types[:, None] == numbers).sum(0)
        ends = ((counts + size - 1).div(size, rounding_mode="floor") * size).cumsum(0)
        ordered, order = torch.sort(types, stable=True)
        rank = torch.arange(atoms, device=device) - (counts.cumsum(0) - counts)[ordered]
        begins = torch.cat([ends.new_zeros(1), ends[:-1]])
        place = torch.empty_like(order).scatter(0, order, begins[ordered] + rank)
        tiles = torch.arange(-(-atoms // size) + num_types, device=device) * size
        kinds = torch.searchsorted(ends, tiles, right=True).clamp(max=num_types - 1)
        return cls(place, (kinds[:, None] == numbers).to(dtype), size)

    def spread(self, rows: Tensor) -> Tensor:
        """Return rows (N, F) of atoms as tiles (tiles, size, F), zero where there is no atom."""
        count = len(self.of_type)
        table = rows.new_zeros(count * self.size, rows.shape[1])
        return table.index_copy(0, self.place, rows).unflatten(0, (count, self.size))

    def gather(self, tiles: Tensor) -> Tensor:
        """Return the rows (N, F) of the atoms of tiles (tiles, size, F)."""
        return tiles.flatten(0, 1).index_select(0, self.place)

    def parameters(self, of_types: Tensor) -> Tensor:
        """Return the parameters (tiles, ...) of each tile from those of the types (types, ...)."""
        # A product instead of an index, whose gradient would be a sum in any order.
        return (self.of_type @ of_types.flatten(1)).unflatten(1, of_types.shape[1:])


def outputs_by_type(
    layers: Sequence[tuple[Tensor, Tensor, Tensor | None]], inputs: Tensor, types: Tensor
) -> Tensor:
    """Return the outputs (N, K) of the network of each atom's type, differentiable to any order.

    Args:
        layers: stacked weights (types, in, out), biases (types, out), and steps (types, out) or
            None; the last layer is linear.
        inputs: (N, F).
        types: (N,) int64.
    """
    tiles = TypeTiles.build(types, len(layers[0][0]), inputs.dtype)
    of_tiles = [
        tuple(None if part is None else tiles.parameters(part) for part in layer)
        for layer in layers
    ]
    h = stacked_embedding(of_tiles[:-1], tiles.spread(inputs))  # type: ignore[arg-type]
    weight, bias, _ = of_tiles[-1]
    return tiles.gather(torch.baddbmm(bias[:, None], h, weight))  # type: ignore[index, arg-type]


def stacked_embedding(
    layers: Sequence[tuple[Tensor, Tensor, Tensor | None]], inputs: Tensor
) -> Tensor:
    """Return the outputs (networks, n, K) of hidden layers with a batch of n inputs each.

    Args:
        layers: stacked weights (networks, in, out), biases (networks, out), and steps or None.
        inputs: (networks, n, in).
    """
    h = inputs
    for weight, bias, step in layers:
        t = torch.tanh(torch.baddbmm(bias[:, None], h, weight))
        t = t if step is None else t * step[:, None]
        kind = shortcut(*weight.shape[1:])
        h = t + h if kind == SAME else t + torch.cat([h, h], dim=2) if kind == TWICE else t
    return h

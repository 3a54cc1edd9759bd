"""Training samples: crops with coarse nodes as inputs and values at random fine nodes as targets.

Sample i is a pure function of (seed, i): position, symmetry and points of a crop do not depend on
the rank or on the order of reading, so that runs are resumed and distributed exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.campaign.mask import pack
from scitoolkit.superresolution.config import CropConfig
from scitoolkit.superresolution.differentiate import is_even
from scitoolkit.superresolution.grid import RectilinearGrid, oriented, time_nodes
from scitoolkit.superresolution.masked import cut, filled, valid_nodes
from scitoolkit.superresolution.simulations import Simulations

Array = np.ndarray


@dataclass(frozen=True)
class CropLayout:
    """Shape of a crop, one entry per dim.

    Attributes:
        size: fine nodes.
        every: the low resolution has every n-th node.
        whole: whether the crop spans the dim.
        walled: whether the model depends on the position along the dim.
    """

    size: tuple[int, ...]
    every: tuple[int, ...]
    whole: tuple[bool, ...]
    walled: tuple[bool, ...]


def layout_of(grid: RectilinearGrid, crop: CropConfig, walled: Sequence[str] = ()) -> CropLayout:
    """Return the layout of crops of a configuration on a grid.

    Raises:
        ConfigError: an unknown dim, a single node, a crop larger than the file, or a spacing that
            does not divide it: the low resolution includes the end nodes of an open dim and fills a
            periodic one evenly.
    """
    for key, names in (
        ("crop.size", crop.size),
        ("crop.every", crop.every),
        ("data.walled", walled),
    ):
        unknown = [d for d in names if d not in grid.dims]
        if unknown:
            raise ConfigError(
                f"{unknown[0]!r} is not a dim", where=key, allowed=", ".join(grid.dims)
            )
    sizes, everies = [], []
    for dim, count, period in zip(grid.dims, grid.shape, grid.periods, strict=True):
        size, every = crop.size.get(dim, count), crop.every.get(dim, 1)
        if size < 2:
            raise ConfigError(
                f"a single node along {dim}, {count} in the file",
                where=f"crop.size.{dim}",
                allowed="2 or more",
                fix="fields without that dim if it has one node",
            )
        if size > count:
            raise ConfigError(
                f"crops have {size} nodes along {dim}, but the file has {count}",
                where=f"crop.size.{dim}",
                allowed=f"1 to {count}",
            )
        # The low resolution of a period of n nodes has n / every nodes and wraps around; that of an
        # open crop has a node at both ends, so that its n - 1 cells have to divide.
        closed = period is not None and size == count
        for factor in crop.coarser if every > 1 else ():
            step, where = every * factor, f"crop.every.{dim}" if factor == 1 else "crop.coarser"
            if (size if closed else size - 1) % step:
                good = [n for n in range(2, 33) if (size if closed else size - 1) % n == 0]
                raise ConfigError(
                    f"every {step}-th of {size} nodes along {dim} does not "
                    + ("fill the period" if closed else "end at the last"),
                    where=where,
                    allowed=", ".join(map(str, good)) or "1",
                )
            if (size // step if closed else (size - 1) // step + 1) < 2:
                raise ConfigError(
                    f"every {step}-th of {size} nodes along {dim} leaves fewer than 2", where=where
                )
        sizes.append(size)
        everies.append(every)
    whole = tuple(s == n for s, n in zip(sizes, grid.shape, strict=True))
    return CropLayout(tuple(sizes), tuple(everies), whole, tuple(d in walled for d in grid.dims))


class CropSource:
    """Random crops of simulations; implements the loader's `Source`.

    Args:
        simulations: of a campaign.
        numbers: numbers of the simulations to use.
        grid: that of the first simulation; others may be longer or shorter in time.
        layout: from `layout_of`.
        crop: the configuration.
        seed: of positions, symmetries and points.
        pde_points: number of further random points in the crop, for residuals.

    Samples hold `low` (B, fields, *n) and `values` (B, N, fields) float32, physical units;
    `points` (B, N, d) and `pde_points` (B, M, d) float32 coordinates from `origin` (B, d) float64;
    `nodes_0`, `nodes_1`, ... (B, n) float32 coordinates of the low resolution, likewise;
    `signs` (B, fields) float32 is -1 for fields whose sign a mirror changed; `reflection` (B, d, 2)
    float64 holds a and b of the map a x + b from the file's coordinates to those of the crop, along
    dims without a period. With a mask, `values` are those of valid nodes; every crop has one.
    """

    bytes_read: int

    def __init__(
        self,
        simulations: Simulations,
        numbers: Sequence[int],
        grid: RectilinearGrid,
        layout: CropLayout,
        crop: CropConfig,
        *,
        seed: int = 0,
        pde_points: int = 0,
    ) -> None:
        self.simulations, self.numbers = simulations, list(numbers)
        fields = self.fields = simulations.fields
        self.grid: RectilinearGrid = grid
        self.layout: CropLayout = layout
        self.crop: CropConfig = crop
        self.seed: int = seed
        self.pde_points: int = pde_points
        self.bytes_read = 0
        self.last_window: Array = np.cumsum(self._windows())
        self.valid: Array | None = valid_nodes(simulations, grid)
        symmetries = crop.symmetries
        for key in (*symmetries.shift, *symmetries.mirror):
            if key not in grid.dims:
                raise ConfigError(
                    f"{key!r} is not a dim", where="crop.symmetries", allowed=", ".join(grid.dims)
                )
        for key in symmetries.shift:
            if grid.periods[grid.dims.index(key)] is None:
                raise ConfigError(f"{key} is not periodic", where="crop.symmetries.shift")
        for key in (*symmetries.shift, *symmetries.mirror):
            self._require_even(key)
        for names in symmetries.mirror.values():
            unknown = [n for n in names if n not in fields]
            if unknown:
                raise ConfigError(
                    f"{unknown[0]!r} is not a field",
                    where="crop.symmetries.mirror",
                    allowed=", ".join(fields),
                )

    def _require_even(self, dim: str) -> None:
        """Refuse to move the values of a whole period whose nodes are uneven.

        Such values are moved by whole nodes while the coordinates remain (`_transform`,
        `_mirrored`), which is the same periodic flow only if all nodes have the same distance.
        """
        axis = self.grid.dims.index(dim)
        nodes, period = self.grid.nodes[axis], self.grid.periods[axis]
        if period is None or not self.layout.whole[axis]:
            return
        if not is_even(np.append(nodes, nodes[0] + period)):
            raise ConfigError(
                f"{dim} has uneven nodes, and crops hold its whole period",
                where="crop.symmetries",
                allowed=f"an evenly spaced {dim}, or crops of a part of it",
                fix=f"remove {dim} from crop.symmetries, or set crop.size.{dim}",
            )

    def _windows(self) -> list[int]:
        """Return the number of positions of a crop along time in each simulation.

        Raises:
            DataError: a simulation is shorter than a crop, or has another length although crops
                span the time.
        """
        lengths = [len(self.simulations.blocks[n]) for n in self.numbers]
        axis = self.grid.dims.index(self.simulations.time)
        size, whole = self.layout.size[axis], self.layout.whole[axis]
        for number, length in zip(self.numbers, lengths, strict=True):
            if length < size or (whole and length != size):
                dim = self.simulations.time
                raise DataError(
                    f"{length} rows along {dim}, but crops have {size}",
                    where=f"simulation {self.simulations.label(number)}",
                    fix=f"crop.size.{dim}: at most {min(lengths)}",
                )
        return [length - size + 1 for length in lengths]

    def __len__(self) -> int:
        """Return the number of crops in an epoch."""
        return self.crop.per_epoch

    def describe(self) -> dict[str, Any]:
        """Return the settings that identify the set of crops."""
        return {
            "fields": self.fields,
            "shape": list(self.grid.shape),
            "dims": list(self.grid.dims),
            "crop": self.crop.model_dump(mode="json"),
            "seed": self.seed,
            "pde_points": self.pde_points,
            **({"windows": self.last_window.tolist()} if len(self.numbers) > 1 else {}),
            **({} if self.valid is None else {"mask": pack(self.valid)}),
        }

    def read(self, indices: Array) -> dict[str, Array]:
        """Return the crops `indices`."""
        samples = [self._crop(int(i)) for i in indices]
        return {key: np.stack([s[key] for s in samples]) for key in samples[0]}

    def _crop(self, index: int) -> dict[str, Array]:
        # A crop follows from its number alone, whichever process or thread reads it.
        rng = np.random.default_rng((self.seed, index))
        place = 0
        if len(self.numbers) > 1:
            # Uniform over all positions of all simulations: a longer simulation gives more crops.
            drawn = rng.integers(self.last_window[-1])
            place = int(np.searchsorted(self.last_window, drawn, side="right"))
        dataset = self.simulations.dataset(self.numbers[place])
        layout, grid = self.layout, self._grid_of(dataset)
        starts = self._starts(grid, rng)
        values = self._read(dataset, grid, starts)
        nodes = [
            _unrolled(n, period, start, size)
            for n, period, start, size in zip(
                grid.nodes, grid.periods, starts, layout.size, strict=True
            )
        ]
        values, nodes, signs, reflection = self._transform(values, nodes, rng, grid)
        origin = np.array(
            [
                # Relative coordinates make the model independent of the position; along walled dims
                # it depends on it, and along a whole period a position is one of the period in any
                # case.
                0.0 if walled or (whole and period is not None) else n[0]
                for walled, whole, period, n in zip(
                    layout.walled, layout.whole, grid.periods, nodes, strict=True
                )
            ]
        )
        nodes = [n - o for n, o in zip(nodes, origin, strict=True)]
        return {**self._sample(values, nodes, origin, signs, rng), "reflection": reflection}

    def _starts(self, grid: RectilinearGrid, rng: np.random.Generator) -> list[int]:
        """Draw the first nodes of a crop until it contains a valid node."""
        layout = self.layout
        while True:
            starts = [
                # Part of a period may begin anywhere, as it wraps around.
                int(rng.integers(count if period is not None and not whole else count - size + 1))
                for count, size, period, whole in zip(
                    grid.shape, layout.size, grid.periods, layout.whole, strict=True
                )
            ]
            if self.valid is None or cut(self.valid, starts, layout.size).any():
                return starts

    def _grid_of(self, dataset: xr.Dataset) -> RectilinearGrid:
        """Return the grid of a simulation, which differs from the first one in time only."""
        times = time_nodes(dataset, self.simulations.time)
        pairs = zip(self.grid.dims, self.grid.nodes, strict=True)
        return self.grid.with_nodes([times if d == self.simulations.time else n for d, n in pairs])

    def _read(self, dataset: xr.Dataset, grid: RectilinearGrid, starts: Sequence[int]) -> Array:
        """Return (fields, *size) values of a crop, wrapped around periodic dims.

        With a mask an additional last entry is 1 for valid nodes and 0 for others, whose values are
        0.
        """
        parts = [
            [slice(start, min(start + size, count)), slice(0, max(start + size - count, 0))]
            for start, size, count in zip(starts, self.layout.size, grid.shape, strict=True)
        ]
        out = np.stack([_wrapped(oriented(dataset[n], grid), parts) for n in self.fields])
        self.bytes_read += out.nbytes
        valid: Array | bool = True
        if self.valid is not None:
            valid = cut(self.valid, starts, self.layout.size)
        bad = ~np.isfinite(out) & valid
        if bad.any():
            channel = int(np.argwhere(bad)[0][0])
            raise DataError(
                f"NaN or Inf in the crop from {dict(zip(grid.dims, starts, strict=True))}",
                where=f"variable {self.fields[channel]}",
                fix="fill or cut out the part",
            )
        if self.valid is not None:
            out = np.concatenate(
                [np.where(valid, out, 0), np.broadcast_to(valid, out.shape[1:])[None]]
            )
        return out.astype(np.float32, copy=False)

    def _transform(
        self, values: Array, nodes: list[Array], rng: np.random.Generator, grid: RectilinearGrid
    ):
        signs = np.ones(len(values), np.float32)
        reflection = np.tile([1.0, 0.0], (len(nodes), 1))
        symmetries = self.crop.symmetries
        for dim in symmetries.shift:
            axis = self.grid.dims.index(dim)
            if self.layout.whole[axis]:
                values = np.roll(values, int(rng.integers(values.shape[axis + 1])), axis + 1)
        for dim, turned in symmetries.mirror.items():
            if rng.random() < 0.5:
                continue
            axis = self.grid.dims.index(dim)
            values = np.flip(values, axis + 1)
            own = grid.nodes[axis]
            nodes[axis] = _mirrored(nodes[axis], own, grid.periods[axis])
            # x -> first + last - x, about the middle of the domain.
            reflection[axis] = -1.0, own[0] + own[-1]
            for name in turned:
                signs[self.fields.index(name)] *= -1
        # A last entry for the mask has the sign 1.
        values = values * signs.reshape(-1, *[1] * len(nodes))
        return values, nodes, signs[: len(self.fields)], reflection

    def _sample(self, values, nodes, origin, signs, rng) -> dict[str, Array]:
        layout, dims = self.layout, len(nodes)
        strides = tuple(slice(None, None, n) for n in layout.every)
        if self.valid is None:
            low = values[(slice(None), *strides)]
            chosen = [rng.integers(size, size=self.crop.points) for size in layout.size]
        else:
            values, valid = values[:-1], values[-1] > 0
            # If all coarse nodes are invalid, the nearest valid fine node is used.
            coarse_valid = valid[strides]
            low = values[(slice(None), *strides)]
            low = (
                filled(low, coarse_valid)
                if coarse_valid.any()
                else filled(values, valid)[(slice(None), *strides)]
            )
            places = np.flatnonzero(valid)[rng.integers(valid.sum(), size=self.crop.points)]
            chosen = list(np.unravel_index(places, valid.shape))
        sample: dict[str, Array] = {
            "low": low.astype(np.float32),
            "values": values[(slice(None), *chosen)].T.astype(np.float32),
            "points": np.stack([n[i] for n, i in zip(nodes, chosen, strict=True)], -1),
            "origin": origin,
            "signs": signs,
        }
        for axis in range(dims):
            sample[f"nodes_{axis}"] = nodes[axis][strides[axis]].astype(np.float32)
        if self.pde_points:
            low = np.array([n[0] for n in nodes])
            high = np.array(
                [
                    n[0] + p if w and p is not None else n[-1]
                    for n, p, w in zip(nodes, self.grid.periods, layout.whole, strict=True)
                ]
            )
            sample["pde_points"] = low + (high - low) * rng.random((self.pde_points, dims))
        for key in ("points", "pde_points"):
            if key in sample:
                sample[key] = sample[key].astype(np.float32)
        return sample


def _wrapped(array: xr.DataArray, parts: Sequence[Sequence[slice]], axis: int = 0) -> Array:
    """Return the values of one or two slices of each dim, concatenated."""
    if axis == len(parts):
        return array.values
    pieces = [
        _wrapped(array.isel({array.dims[axis]: part}), parts, axis + 1)
        for part in parts[axis]
        if part.stop > part.start
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis)


def _unrolled(nodes: Array, period: float | None, start: int, size: int) -> Array:
    """Return `size` ascending coordinates from `start` on, continued beyond the period."""
    index = np.arange(start, start + size)
    # Ascending coordinates: those behind the end are a period larger, not small again.
    turns = index // len(nodes)
    return nodes[index % len(nodes)] + turns * (period or 0.0)


def _mirrored(nodes: Array, own: Array, period: float | None) -> Array:
    """Return the coordinates of reversed values, mirrored about the middle of the domain."""
    if period is not None:
        # Reversed values of a whole period are those of the mirror, moved by a node, which is
        # another place of the same periodic flow; the coordinates remain.
        return nodes if len(nodes) == len(own) else nodes[0] + (nodes[-1] - nodes[::-1])
    return own[0] + own[-1] - nodes[::-1]

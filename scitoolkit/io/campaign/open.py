"""A campaign for other programs: a tree of lazy datasets, and batches for any training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.campaign import open_campaign as find_campaign
from scitoolkit.io.campaign.layouts import COMPONENT, SIMULATION, TIME, Options
from scitoolkit.io.campaign.mask import MISSING
from scitoolkit.io.campaign.masking import with_mask
from scitoolkit.io.campaign.parameters import (
    ParameterRows,
    Scale,
    parameter_values,
    with_parameters,
)
from scitoolkit.io.campaign.rows import CampaignRows, Rows, row_sets
from scitoolkit.io.campaign.split import CampaignSplit, SplitRows, split_campaign
from scitoolkit.io.campaign.windows import CampaignWindows
from scitoolkit.io.fields import PathLike

if TYPE_CHECKING:
    from scitoolkit.io.loader import PlannedLoader

Channels = Literal["first", "last"]


def open_campaign(
    path: PathLike | Sequence[PathLike], variables: Sequence[str] | None = None, *,
    cache: PathLike | None = None, parameters: Sequence[str] | Mapping[str, Scale] = (),
    parameter_table: PathLike | None = None, mask: str | None = None, **options: Any,
) -> OpenCampaign:  # fmt: skip
    """Open simulations in files as a tree of datasets and as batches; nothing is read yet.

    Args:
        path: a file, a glob, a directory, or a list of files, in any layout of the page "My
            campaign in ten minutes".
        variables: names; those on the largest grid unless given.
        cache: folder where the index of the files is kept.
        parameters: numbers that each simulation has, by name, as attributes or scalars of the
            files or columns of a table; {name: `log`} for the common logarithm.
        parameter_table: CSV file whose first column names the simulations.
        mask: a variable without time that is 1 where fields have values, or `missing` where other
            cells are NaN, or the fill value, in every row. Windows are 0 there; `valid` says where.
        **options: what is not found by itself: the fields of `Options`, such as `pattern`.

    Raises:
        DataError: a file is damaged or differs from the first, or the layout is not clear.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> for i in range(3):
        ...     u = np.full((6, 4), float(i), "f4")
        ...     xr.Dataset({"u": (("time", "x"), u)}).to_netcdf(
        ...         f"{folder}/run{i}.nc", engine="h5netcdf")
        >>> campaign = open_campaign(folder)
        >>> list(campaign.tree().children)
        ['run0', 'run1', 'run2']
        >>> batch = next(iter(campaign.loader(batch_size=2, history=2)))
        >>> tuple(batch["x"].shape), tuple(batch["y"].shape)
        ((2, 2, 1, 4), (2, 1, 1, 4))
    """
    found = find_campaign(path, variables, Options(**options), cache=cache)
    if mask is not None:
        names = [name for name in found.names if name != mask]
        if mask != MISSING:
            found = find_campaign(path, [*names, mask], Options(**options), cache=cache)
        found = with_mask(found, mask, names)
    table = None if parameter_table is None else Path(parameter_table)
    scales: dict[str, Scale] = (
        dict(parameters) if isinstance(parameters, Mapping)
        else {name: "linear" for name in parameters}
    )  # fmt: skip
    return OpenCampaign(with_parameters(found, scales, table), table)


class OpenCampaign:
    """An opened campaign; made by `open_campaign`.

    Args:
        found: the simulations, their rows and channels.
        table: CSV file with parameters of simulations.
    """

    def __init__(self, found: Campaign, table: Path | None = None) -> None:
        self.found: Campaign = found
        self.table: Path | None = table

    def __repr__(self) -> str:
        """Return layout, size and channels."""
        found = self.found
        return (
            f"<campaign, {found.layout}: {found.index.num_simulations} simulations, "
            f"{found.index.num_rows} rows, channels {', '.join(found.channels)}>"
        )

    @property
    def valid(self) -> np.ndarray | None:
        """The cells of the mask that hold values, bool in the order of the dims; None for all."""
        return None if self.found.mask is None else self.found.mask.valid

    @cached_property
    def rows(self) -> dict[str, Rows]:
        """The rows of each array, by its path in the files."""
        return row_sets(self.found)

    def tree(self, simulations: Sequence[int] | slice = slice(None)) -> xr.DataTree:
        """Return a dataset for each simulation; values are read when they are asked for.

        Args:
            simulations: numbers of those that are wanted.
        """
        numbers = np.arange(self.found.index.num_simulations)[simulations]
        nodes = {self.found.labels[n].replace("/", "_"): self.dataset(int(n)) for n in numbers}
        return xr.DataTree.from_dict({f"/{name}": one for name, one in nodes.items()})

    def dataset(self, simulation: int) -> xr.Dataset:
        """Return one simulation with its coordinates and units; values are read when asked for."""
        found, dim = self.found, self.found.options.sample_dim
        variables = {}
        for path, rows in self.rows.items():
            if isinstance(rows, ParameterRows):
                variables[path] = xr.Variable((), rows.values[simulation])
                continue
            lazy = indexing.LazilyIndexedArray(
                _SimulationArray(rows, found.index.blocks[simulation])
            )
            attrs = {"units": rows.units} if rows.units else {}
            variables[_short(path)] = xr.Variable((dim, *_dims(rows)), lazy, attrs)
        return self._dataset(simulation, variables)

    def channels(self, simulation: int) -> xr.Dataset:
        """Return one simulation with a variable for each channel, read when asked for.

        Components are variables; the numbers among the attributes of the simulation's file are
        attributes.
        """
        found, dim = self.found, self.found.options.sample_dim
        variables = {}
        for path, channels in found.arrays.items():
            rows = self.rows[path]
            if isinstance(rows, ParameterRows):
                continue
            array = _SimulationArray(rows, found.index.blocks[simulation])
            whole = xr.Variable((dim, *_dims(rows)), indexing.LazilyIndexedArray(array))
            for channel in channels:
                pairs = zip(channel.components, rows.first, strict=True)
                numbers = iter(number - first for number, first in pairs)
                at = {d: next(numbers) for d in whole.dims if d not in (dim, *channel.dims)}
                one = whole.isel(at)
                one.attrs = {"units": rows.units} if rows.units else {}
                variables[channel.name] = one
        made = self._dataset(simulation, variables)
        segment = int(np.flatnonzero(found.index.simulation == simulation)[0])
        header = found.segments.header(int(found.segments.file[segment]))
        group = found.segments.groups[found.segments.group[segment]]
        prefix = f"{group}/" if group else ""
        plain = {k: v for k, v in header.attrs.items() if "/" not in k}
        inner = {k.removeprefix(prefix): v for k, v in header.attrs.items() if k.startswith(prefix)}
        return made.assign_attrs({**plain, **inner})

    def _dataset(self, simulation: int, variables: Mapping[str, xr.Variable]) -> xr.Dataset:
        found, dim = self.found, self.found.options.sample_dim
        segments = np.flatnonzero(found.index.simulation == simulation)
        times = [found.segments.times(int(k), found.options) for k in segments]
        known = [t for t in times if t is not None]
        coordinates: dict[str, Any] = dict(found.coordinates)
        if len(known) == len(times):
            coordinates[dim] = xr.Variable.concat(known, dim=dim)
        return xr.Dataset(variables, coordinates)

    def split(self, **sizes: Any) -> SplitRows:
        """Return ranges of rows for `train`, `validation` and `test`; no two share a simulation.

        Args:
            **sizes: the fields of `CampaignSplit`: train, validation, test, by, ...
        """
        config, found = CampaignSplit(**sizes), self.found
        name = config.parameter
        values = None if name is None else parameter_values(found, name, self.table)
        return split_campaign(found.index, 2, config, own_test=True, parameter=values)

    def windows(
        self, history: int = 1, horizon: int = 1, *, stride: int = 1,
        part: Sequence[range] | None = None, channels: Channels = "first",
        inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None,
    ) -> PairSource:  # fmt: skip
        """Return windows as samples: `x` (B, history, C, ...) and `y` (B, horizon, C, ...).

        With parameters there is `parameters` too, (B, P), in the order that they were asked for.

        Args:
            history: rows that a model is given.
            horizon: rows that it returns.
            stride: rows between neighbours of a window.
            part: ranges of rows, as of `split`; all unless given.
            channels: where the dim of channels stands: before or behind the space dims.
            inputs: variables or channels of `x`; all unless given.
            outputs: those of `y`.
        """
        offsets = [stride * k for k in range(history + horizon)]
        blocks = self.found.index.blocks if part is None else part
        starts = self.found.index.starts(blocks, offsets[-1] + 1)
        names = [self._channels(inputs), self._channels(outputs)]
        return PairSource(self.found, self.rows, starts, offsets, history, channels, names)

    def _channels(self, names: Sequence[str] | None) -> list[str]:
        if names is None:
            return [name for name in self.found.channels if name not in self.found.parameters]
        return [c for name in names for c in self.found.names.get(name, (name,))]

    def loader(
        self, batch_size: int, history: int = 1, horizon: int = 1, *, stride: int = 1,
        part: Sequence[range] | None = None, channels: Channels = "first",
        inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None, **options: Any,
    ) -> PlannedLoader:  # fmt: skip
        """Return batches in exactly shuffled order, in place of a `DataLoader`.

        Args:
            batch_size: windows in a batch, over all ranks.
            history: see `windows`, as the following.
            horizon: rows that a model returns.
            stride: rows between neighbours of a window.
            part: ranges of rows.
            channels: where the dim of channels stands.
            inputs: variables of `x`.
            outputs: variables of `y`.
            **options: of `PlannedLoader`: seed, buffer, shuffle, ...
        """
        from scitoolkit.io.loader import PlannedLoader

        source = self.windows(history, horizon, stride=stride, part=part, channels=channels,
                              inputs=inputs, outputs=outputs)  # fmt: skip
        return PlannedLoader(source, batch_size, **options)


class PairSource(CampaignWindows):
    """Windows as pairs of arrays; indexable, so that a torch `DataLoader` accepts it too.

    Args:
        campaign: see `CampaignWindows`, as the following.
        sets: the rows of its arrays.
        starts: first row of each window.
        offsets: rows of a window.
        history: how many of them are the input.
        channels: where the dim of channels stands.
        names: channels of `x`, and of `y`.
    """

    def __init__(
        self, campaign: Campaign, sets: Mapping[str, Rows], starts: np.ndarray,
        offsets: Sequence[int], history: int, channels: Channels, names: Sequence[Sequence[str]],
    ) -> None:  # fmt: skip
        super().__init__(campaign, sets, starts, offsets)
        self.history: int = history
        self.axis = 2 if channels == "first" else -1
        self.names: Sequence[Sequence[str]] = names

    def assemble(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return `x` and `y` of a batch."""
        found = super().assemble(values)
        x = np.stack([found[n][:, : self.history] for n in self.names[0]], self.axis)
        y = np.stack([found[n][:, self.history :] for n in self.names[1]], self.axis)
        numbers = [found[n][:, 0] for n in self.campaign.parameters]
        return {"x": x, "y": y, **({"parameters": np.stack(numbers, 1)} if numbers else {})}

    def __getitem__(self, sample: int) -> dict[str, np.ndarray]:
        """Return one sample."""
        return {key: value[0] for key, value in self.read(np.array([sample])).items()}


def _short(path: str) -> str:
    return path.rpartition("/")[2]


def _dims(rows: CampaignRows) -> list[str]:
    roles = [r for r in rows.array.roles if r not in (TIME, SIMULATION)]
    names = iter(f"component_{k}" if k else "component" for k in range(len(roles)))
    return [next(names) if r == COMPONENT else r for r in roles]


class _SimulationArray(BackendArray):
    """One array of one simulation, read by rows.

    Args:
        rows: the array.
        block: the rows of the simulation.
    """

    def __init__(self, rows: CampaignRows, block: range) -> None:
        self.rows, self.block = rows, block
        self.shape = (len(block), *rows.row_shape)
        self.dtype = rows.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Return some values."""
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER_1VECTOR, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        wanted = np.atleast_1d(np.asarray(self.block)[key[0]])
        pairs = zip(key[1:], self.rows.row_shape, strict=True)
        boxes = [_box(one, size) for one, size in pairs]
        distinct, inverse = np.unique(wanted, return_inverse=True)
        bounds = self.rows.bounds
        cuts = np.flatnonzero(
            (np.diff(distinct) != 1) | np.isin(distinct[1:], bounds)
        ) + 1  # fmt: skip
        parts = [
            self.rows.part(int(run[0]), int(run[-1]) + 1, [box for box, _ in boxes])
            for run in np.split(distinct, cuts) if len(run)
        ]  # fmt: skip
        empty = np.empty((0, *(box.stop - box.start for box, _ in boxes)), self.dtype)
        values = np.concatenate(parts or [empty])
        if len(wanted) != len(distinct) or (inverse != np.arange(len(wanted))).any():
            values = values[inverse]
        for axis, (_, rest) in reversed(list(enumerate(boxes, start=1))):
            values = values if rest is None else np.take(values, rest, axis)
        return values[0] if isinstance(key[0], int | np.integer) else values


def _box(key: int | slice | np.ndarray, size: int) -> tuple[slice, int | np.ndarray | None]:
    """Return the smallest slice that holds what is wanted of a dim, and what of it is wanted."""
    if isinstance(key, int | np.integer):
        return slice(int(key), int(key) + 1), 0
    wanted = np.arange(size)[key]
    if not len(wanted):
        return slice(0, 0), None
    low, high = int(wanted.min()), int(wanted.max()) + 1
    whole = len(wanted) == high - low and (np.diff(wanted) == 1).all()
    return slice(low, high), None if whole else wanted - low

"""Public interface of campaigns: trees of lazy datasets, and batches for any training loop."""

from __future__ import annotations

from collections import Counter
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
from scitoolkit.io.campaign.campaign_layout import COMPONENT, SIMULATION, TIME, CampaignOptions
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
from scitoolkit.io.dates import joined_times
from scitoolkit.io.fields import PathLike

if TYPE_CHECKING:
    from scitoolkit.io.loader import PlannedLoader

Channels = Literal["first", "last"]


def open_campaign(
    path: PathLike | Sequence[PathLike],
    variables: Sequence[str] | None = None,
    *,
    cache: PathLike | None = None,
    parameters: Sequence[str] | Mapping[str, Scale] = (),
    parameter_table: PathLike | None = None,
    mask: str | None = None,
    **options: Any,
) -> OpenCampaign:
    """Open simulations in files for access as datasets and batches, without reading fields.

    Args:
        path: a file, a glob, a directory, or a list of files, in any layout of the page "My
            campaign in ten minutes".
        variables: names; by default the variables on the largest grid.
        cache: folder of the cached index.
        parameters: names of parameters of the simulations: attributes or scalars of the files, or
            columns of a table; {name: `log`} for the common logarithm.
        parameter_table: CSV file whose first column names the simulations.
        mask: a time-independent variable that is 1 in valid cells, or `missing` if invalid cells
            are NaN or the fill value in every row. Windows are 0 in invalid cells, see `valid`.
        **options: fields of `CampaignOptions` that override detection, such as `pattern`.

    Raises:
        DataError: a file is damaged or differs from the first, or the layout is ambiguous.

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
    campaign = find_campaign(path, variables, CampaignOptions(**options), cache=cache)
    if mask is not None:
        names = [name for name in campaign.names if name != mask]
        if mask != MISSING:
            campaign = find_campaign(path, [*names, mask], CampaignOptions(**options), cache=cache)
        campaign = with_mask(campaign, mask, names)
    table = None if parameter_table is None else Path(parameter_table)
    scales: dict[str, Scale] = (
        dict(parameters)
        if isinstance(parameters, Mapping)
        else {name: "linear" for name in parameters}
    )
    return OpenCampaign(with_parameters(campaign, scales, table), table)


class OpenCampaign:
    """Campaign opened by `open_campaign`.

    Args:
        found: simulations, rows and channels.
        table: CSV file with parameters of simulations.
    """

    def __init__(self, found: Campaign, table: Path | None = None) -> None:
        self.found: Campaign = found
        self.table: Path | None = table

    def _repr_html_(self) -> str:
        """Return numbers of simulations, rows and files, and the channels, for a notebook."""
        return self.found._repr_html_()

    def __repr__(self) -> str:
        """Return layout, size and channels."""
        campaign = self.found
        return (
            f"<campaign, {campaign.layout}: {campaign.index.num_simulations} simulations, "
            f"{campaign.index.num_rows} rows, channels {', '.join(campaign.channels)}>"
        )

    @property
    def valid(self) -> np.ndarray | None:
        """The valid cells of the mask, (*dims) bool; None without a mask."""
        return None if self.found.mask is None else self.found.mask.valid

    @cached_property
    def rows(self) -> dict[str, Rows]:
        """The rows of each array by its path in the files."""
        return row_sets(self.found)

    def tree(self, simulations: Sequence[int] | slice = slice(None)) -> xr.DataTree:
        """Return a tree with a lazy dataset for each simulation.

        Args:
            simulations: numbers of the simulations.
        """
        numbers = np.arange(self.found.index.num_simulations)[simulations]
        # A `/` of a group would be a level of the tree.
        nodes = {self.found.labels[n].replace("/", "_"): self.dataset(int(n)) for n in numbers}
        return xr.DataTree.from_dict({f"/{name}": one for name, one in nodes.items()})

    def dataset(self, simulation: int) -> xr.Dataset:
        """Return one simulation as a lazy dataset with coordinates and units."""
        campaign, dim = self.found, self.found.options.sample_dim
        variables = {}
        names = _distinct_names(campaign)
        for path, rows in self.rows.items():
            if isinstance(rows, ParameterRows):
                variables[path] = xr.Variable((), rows.values[simulation])
                continue
            lazy = indexing.LazilyIndexedArray(
                _SimulationArray(rows, campaign.index.blocks[simulation])
            )
            attrs = campaign.arrays[path][0].array.attributes()
            variables[names[path]] = xr.Variable((dim, *_dims(rows)), lazy, attrs)
        return self._dataset(simulation, variables)

    def channels(self, simulation: int) -> xr.Dataset:
        """Return one simulation as a lazy dataset with a variable for each channel.

        The dataset has the attributes of the simulation's file and group.
        """
        campaign, dim = self.found, self.found.options.sample_dim
        variables = {}
        for path, channels in campaign.arrays.items():
            rows = self.rows[path]
            if isinstance(rows, ParameterRows):
                continue
            array = _SimulationArray(rows, campaign.index.blocks[simulation])
            whole = xr.Variable((dim, *_dims(rows)), indexing.LazilyIndexedArray(array))
            for channel in channels:
                # Rows hold only the components in use, which are counted from the first of them.
                pairs = zip(channel.components, rows.first, strict=True)
                numbers = iter(number - first for number, first in pairs)
                at = {d: next(numbers) for d in whole.dims if d not in (dim, *channel.dims)}
                one = whole.isel(at)
                if channel.part:
                    one = one.real if channel.part == "real" else one.imag
                one.attrs = channel.array.attributes()
                variables[channel.name] = one
        made = self._dataset(simulation, variables)
        segment = int(np.flatnonzero(campaign.index.simulation == simulation)[0])
        header = campaign.segments.header(int(campaign.segments.file[segment]))
        group = campaign.segments.groups[campaign.segments.group[segment]]
        prefix = f"{group}/" if group else ""
        plain = {k: v for k, v in header.attrs.items() if "/" not in k}
        inner = {k.removeprefix(prefix): v for k, v in header.attrs.items() if k.startswith(prefix)}
        return made.assign_attrs({**plain, **inner})

    def _dataset(self, simulation: int, variables: Mapping[str, xr.Variable]) -> xr.Dataset:
        campaign, dim = self.found, self.found.options.sample_dim
        segments = np.flatnonzero(campaign.index.simulation == simulation)
        times = [
            campaign.segments.times(int(k), campaign.options, campaign.arrays) for k in segments
        ]
        timed = [t for t in times if t is not None]
        coordinates: dict[str, Any] = dict(campaign.coordinates_of(simulation))
        if len(timed) == len(times):
            coordinates[dim] = joined_times(timed, dim)
        return xr.Dataset(variables, coordinates)

    def split(self, **sizes: Any) -> SplitRows:
        """Return disjoint ranges of rows for `train`, `validation` and `test`.

        Args:
            **sizes: the fields of `CampaignSplit`: train, validation, test, by, ...
        """
        config, campaign = CampaignSplit(**sizes), self.found
        name = config.parameter
        values = None if name is None else parameter_values(campaign, name, self.table)
        return split_campaign(campaign.index, 2, config, own_test=True, parameter=values)

    def windows(
        self,
        history: int = 1,
        horizon: int = 1,
        *,
        stride: int = 1,
        part: Sequence[range] | None = None,
        channels: Channels = "first",
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> PairSource:
        """Return a source of windows: `x` (B, history, C, ...) and `y` (B, horizon, C, ...).

        With parameters, samples also have `parameters` (B, P) in the requested order and the
        precision of `x`.

        Args:
            history: number of input rows.
            horizon: number of output rows.
            stride: rows between neighbours of a window.
            part: ranges of rows, as of `split`; all rows by default.
            channels: position of the channel dim: before or after the space dims.
            inputs: variables or channels of `x`; all by default.
            outputs: variables or channels of `y`; all by default.
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
        self,
        batch_size: int,
        history: int = 1,
        horizon: int = 1,
        *,
        stride: int = 1,
        part: Sequence[range] | None = None,
        channels: Channels = "first",
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        **options: Any,
    ) -> PlannedLoader:
        """Return a loader of exactly shuffled batches, to use instead of a `DataLoader`.

        Args:
            batch_size: windows per global batch, over all ranks.
            history: number of input rows; this and the following as in `windows`.
            horizon: number of output rows.
            stride: rows between neighbours of a window.
            part: ranges of rows.
            channels: position of the channel dim.
            inputs: variables of `x`.
            outputs: variables of `y`.
            **options: of `PlannedLoader`: seed, buffer, shuffle, ...
        """
        from scitoolkit.io.loader import PlannedLoader

        source = self.windows(
            history,
            horizon,
            stride=stride,
            part=part,
            channels=channels,
            inputs=inputs,
            outputs=outputs,
        )
        return PlannedLoader(source, batch_size, **options)


class PairSource(CampaignWindows):
    """Source of windows as (x, y) pairs; indexable, so that a torch `DataLoader` accepts it too.

    Args:
        campaign: this and the following as in `CampaignWindows`.
        sets: the rows of its arrays.
        starts: first row of each window.
        offsets: rows of a window.
        history: number of rows that are the input.
        channels: position of the channel dim.
        names: channels of `x`, and of `y`.
    """

    def __init__(
        self,
        campaign: Campaign,
        sets: Mapping[str, Rows],
        starts: np.ndarray,
        offsets: Sequence[int],
        history: int,
        channels: Channels,
        names: Sequence[Sequence[str]],
    ) -> None:
        super().__init__(campaign, sets, starts, offsets)
        self.history: int = history
        self.axis = 2 if channels == "first" else -1
        self.names: Sequence[Sequence[str]] = names

    def assemble(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return `x`, `y`, and `parameters` if there are any, of a batch."""
        fields = super().assemble(values)
        x = np.stack([fields[n][:, : self.history] for n in self.names[0]], self.axis)
        y = np.stack([fields[n][:, self.history :] for n in self.names[1]], self.axis)
        numbers = [fields[n][:, 0] for n in self.campaign.parameters]
        if not numbers:
            return {"x": x, "y": y}
        # At least float32: a parameter is no integer, and half precision would round it.
        kind = np.result_type(x.dtype, np.float32)
        return {"x": x, "y": y, "parameters": np.stack(numbers, 1).astype(kind)}

    def __getitem__(self, sample: int) -> dict[str, np.ndarray]:
        """Return one sample."""
        return {key: value[0] for key, value in self.read(np.array([sample])).items()}


def _distinct_names(campaign: Campaign) -> dict[str, str]:
    """Return {path: its last part, or all of it where two paths or a dim share that}."""
    short = {path: path.rpartition("/")[2] for path in campaign.arrays}
    count = Counter(short.values()) + Counter(
        {d for c in campaign.channels.values() for d in c.dims}
    )
    return {p: p.replace("/", "_") if count[name] > 1 else name for p, name in short.items()}


def _dims(rows: CampaignRows) -> list[str]:
    roles = [r for r in rows.array.roles if r not in (TIME, SIMULATION)]
    names = iter(f"component_{k}" if k else "component" for k in range(len(roles)))
    return [next(names) if r == COMPONENT else r for r in roles]


class _SimulationArray(BackendArray):
    """Lazy array of one simulation.

    Args:
        rows: rows of the array.
        block: the rows of the simulation.
    """

    def __init__(self, rows: CampaignRows, block: range) -> None:
        self.rows, self.block = rows, block
        self.shape = (len(block), *rows.row_shape)
        self.dtype = rows.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Return a selection."""
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER_1VECTOR, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        wanted = np.atleast_1d(np.asarray(self.block)[key[0]])
        pairs = zip(key[1:], self.rows.row_shape, strict=True)
        boxes = [_box(one, size) for one, size in pairs]
        distinct, inverse = np.unique(wanted, return_inverse=True)
        bounds = self.rows.bounds
        # Consecutive rows of one segment are one read; a run must not cross into the next file.
        cuts = np.flatnonzero((np.diff(distinct) != 1) | np.isin(distinct[1:], bounds)) + 1
        parts = [
            self.rows.part(int(run[0]), int(run[-1]) + 1, [box for box, _ in boxes])
            for run in np.split(distinct, cuts)
            if len(run)
        ]
        empty = np.empty((0, *(box.stop - box.start for box, _ in boxes)), self.dtype)
        values = np.concatenate(parts or [empty]).astype(self.dtype, copy=False)
        if len(wanted) != len(distinct) or (inverse != np.arange(len(wanted))).any():
            values = values[inverse]
        # From the last axis on: an integer removes its axis, which would shift those behind it.
        for axis, (_, rest) in reversed(list(enumerate(boxes, start=1))):
            values = values if rest is None else np.take(values, rest, axis)
        return values[0] if isinstance(key[0], int | np.integer) else values


def _box(key: int | slice | np.ndarray, size: int) -> tuple[slice, int | np.ndarray | None]:
    """Return the smallest slice that contains a selection, and the selection within the slice."""
    if isinstance(key, int | np.integer):
        return slice(int(key), int(key) + 1), 0
    wanted = np.arange(size)[key]
    if not len(wanted):
        return slice(0, 0), None
    low, high = int(wanted.min()), int(wanted.max()) + 1
    whole = len(wanted) == high - low and (np.diff(wanted) == 1).all()
    return slice(low, high), None if whole else wanted - low

"""Opened campaigns: variables, samples and windows of the files of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr

from scitoolkit.core.data_differences import Accepts, Difference
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.units import same_unit
from scitoolkit.emulation.config import DataConfig
from scitoolkit.emulation.step_input import require_trained_steps, times_of, with_steps
from scitoolkit.emulation.variables import (
    AREA,
    LATITUDE,
    LEAD,
    LONGITUDE,
    STEP,
    Layout,
    areas_in,
    read_layout,
)
from scitoolkit.io.campaign import Campaign, CampaignOptions, open_campaign
from scitoolkit.io.campaign.campaign_layout import TIME
from scitoolkit.io.campaign.mask import MISSING, pack
from scitoolkit.io.campaign.masking import with_mask
from scitoolkit.io.campaign.parameters import with_parameters
from scitoolkit.io.campaign.rows import Rows, row_sets
from scitoolkit.io.campaign.sphere_cells import cells_on_sphere
from scitoolkit.io.campaign.windows import CampaignWindows
from scitoolkit.io.facts import convert, convert_coordinate, of_dataset

log = get_logger(__name__)


@dataclass
class Data:
    """An opened campaign and the layout of its variables.

    Attributes:
        campaign: simulations and their rows.
        dataset: dims, coordinates and attributes of the first simulation, without values.
        layout: variables and grid.
        where: the files, for messages.
        facts: what the files say about the variables.
        lines: {variable: (factor, offset)} into the units of a trained emulator.
        reversed_dims: dims that are read from their end, as a trained emulator requires.
        own_simulations: number of the first simulations, which are divided into parts; all if None.
        replayed: further simulations, of a former training, that are trained on.
        check: called with each frame that is read and its sample; not with those of `source`.
    """

    campaign: Campaign
    dataset: xr.Dataset
    layout: Layout
    where: str
    facts: DataFacts
    lines: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    reversed_dims: tuple[str, ...] = ()
    own_simulations: int | None = None
    replayed: tuple[int, ...] = ()
    check: Callable[[Mapping[str, np.ndarray], int], None] = lambda frame, sample: None

    def close(self) -> None:
        """Close the files."""
        self.dataset.close()

    @property
    def num_samples(self) -> int:
        """Number of samples of all simulations."""
        return self.campaign.index.num_rows

    @property
    def blocks(self) -> list[range]:
        """The samples of each simulation."""
        return self.campaign.index.blocks

    @property
    def stretches(self) -> list[range]:
        """The samples of each simulation, divided where times are missing."""
        return self.campaign.index.stretches

    @property
    def constant(self) -> set[str]:
        """Names of the channels that do not change within a simulation."""
        arrays = {n: c.array for n, c in self.campaign.channels.items()}
        if not any(TIME in array.roles for array in arrays.values()):
            return set(self.campaign.parameters)  # each file is one sample
        return {name for name, array in arrays.items() if TIME not in array.roles}

    @property
    def times(self) -> np.ndarray:
        """Sample coordinate of the first simulation; sample numbers if it has none."""
        dim = self.layout.sample_dim
        size = len(self.blocks[0])
        return self.dataset[dim].values if dim in self.dataset.coords else np.arange(size)

    @cached_property
    def row_times(self) -> np.ndarray | None:
        """Decoded times of all samples, (samples,); None if a file has none."""
        return times_of(self.campaign)

    @cached_property
    def rows(self) -> dict[str, Rows]:
        """Readers of the rows of each array, in any order."""
        return row_sets(self.campaign)

    @cached_property
    def _samples(self) -> CampaignWindows:
        return self.source(np.arange(self.num_samples), [0])

    def frame(self, sample: int) -> dict[str, np.ndarray]:
        """Return the variables of one sample, (*dims) float32 each."""
        frame = {n: v[0, 0] for n, v in self._samples.read(np.array([sample])).items()}
        self.check(frame, sample)
        return frame

    def inputs(self, sample: int, layout: Layout, lead: int) -> dict[str, np.ndarray]:
        """Return the inputs of one sample, earlier values and lead included, noise not.

        Args:
            sample: at least `lead` times the largest age after the start of its simulation.
            layout: the emulator's.
            lead: samples between two ages; also the value of the input `lead`.
        """
        return _with_earlier(self.frame, sample, layout, lead)

    def inputs_of(
        self, samples: range, layout: Layout, lead: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield `inputs` of consecutive samples, read in one go."""
        oldest = max((v.age for v in layout.earlier), default=0)
        rows = np.arange(samples.start - oldest * lead, samples.stop)
        values = self._samples.read(rows)
        for place, row in enumerate(rows):
            self.check({n: v[place, 0] for n, v in values.items()}, int(row))

        def frame(sample: int) -> dict[str, np.ndarray]:
            return {n: v[sample - int(rows[0]), 0] for n, v in values.items()}

        for sample in samples:
            yield _with_earlier(frame, sample, layout, lead)

    def forcing(self, start: int, lead: int) -> Callable[[int], dict[str, np.ndarray]]:
        """Return a function from step k of a rollout that starts at `start` to its variables."""
        return lambda step: self.frame(start + step * lead)

    def source(
        self,
        starts: np.ndarray,
        offsets: Sequence[int],
        repeats: int = 1,
        box: Mapping[str, slice] | None = None,
    ) -> CampaignWindows:
        """Return windows of samples: (B, offset, *dims) float32 for each variable.

        Args:
            starts: first sample of each window.
            offsets: samples of a window, relative to its start, ascending.
            repeats: how often each window occurs in an epoch.
            box: {dim: slice to read}; whole fields unless given.
        """
        rows = row_sets(self.campaign, box) if box else self.rows
        orders = {name: v.dims for name, v in self.layout.variables.items()}
        return CampaignWindows(
            self.campaign,
            rows,
            np.tile(np.asarray(starts, np.int64), repeats),
            offsets,
            orders=orders,
            dtype=np.float32,
            lines=self.lines,
            reversed_dims=self.reversed_dims,
        )


def _with_earlier(
    frame: Callable[[int], dict[str, np.ndarray]], sample: int, layout: Layout, lead: int
) -> dict[str, np.ndarray]:
    """Return a frame with the earlier values and the lead that a layout requires."""
    variables = dict(frame(sample))
    if layout.leads:
        variables[LEAD] = np.array(lead, np.float32)
    for age in sorted({v.age for v in layout.earlier}):
        before = frame(sample - age * lead)
        variables |= {v.name: before[v.earlier_of] for v in layout.earlier if v.age == age}
    return variables


def open_data(
    config: DataConfig,
    path: Path | list[Path] | None = None,
    *,
    like: Layout | None = None,
    cache: Path | None = None,
    keep: bool = True,
) -> Data:
    """Open the variables of a job without reading fields.

    Args:
        config: the data section.
        path: files to open instead of those of `config`.
        like: layout that the files must match, see `matched`.
        cache: folder of the cached index.
        keep: whether to write a new index there.

    Raises:
        DataError: an unreadable file, a missing variable, or dims, a grid or a step that do not
            match.
    """
    own = path is None
    path = config.path if path is None else path
    assert path is not None  # a generator's files are those of its run
    options = CampaignOptions(
        config.sample_dim,
        config.dims,
        config.grid,
        config.files,
        config.pattern,
        config.lead,
        config.on_error,
        "allow" if config.time_steps == "input" else config.gaps,
        config.select or None,
        config.levels,
        "any" if config.time_steps == "input" else "same",
        config.staggered,
        config.offsets or None,
    )
    variables = [*config.inputs, *config.outputs]
    stated = [] if config.mask in (None, MISSING) else [config.mask]
    campaign = open_campaign(path, [*variables, *stated], options, cache=cache, keep=keep)
    if config.mask is not None:
        campaign = with_mask(campaign, config.mask, variables)
    campaign = with_parameters(campaign, config.parameter_scales, config.parameter_table)
    if config.time_steps == "input":
        campaign = with_steps(campaign, config.lead)
    files = campaign.files
    where = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    dataset = campaign.template()
    if config.area_weights:
        dataset = _with_positions(dataset, campaign)
    for name, unit in config.units.items():
        _require_unit(campaign, dataset, name, unit, where)
    layout = _layout(config, campaign, dataset, config.grid, where)
    breaks = campaign.index.breaks
    # The step is that of the first stretch: windows cross no gap.
    end = int(min([campaign.index.bounds[1], *breaks]))
    facts = _facts(dataset.isel({config.sample_dim: slice(end)}), layout)
    data = Data(campaign, dataset, layout, where, facts)
    return data if like is None else matched(data, config, like, warn=not own)


def _with_positions(dataset: xr.Dataset, campaign: Campaign) -> xr.Dataset:
    """Return a dataset with areas and geographic positions of its cells, if they are on a sphere.

    As coordinates they follow the turns and shifts of dims by which data become those of a
    training.
    """
    cells = cells_on_sphere(campaign)
    stored = {AREA: cells.areas, LATITUDE: cells.latitude, LONGITUDE: cells.longitude}
    return dataset.assign_coords({n: along for n, along in stored.items() if along is not None})


def _layout(
    config: DataConfig,
    campaign: Campaign,
    dataset: xr.Dataset,
    grid: Sequence[str] | None,
    where: str,
) -> Layout:
    """Return the layout of a job's variables, with the dims of fields in the order of `grid`."""
    inputs, outputs = (
        [c for name in names for c in campaign.names[name]]
        for names in (config.inputs, config.outputs)
    )
    layout = read_layout(
        dataset,
        [*inputs, *campaign.parameters, *campaign.row_values],
        outputs,
        config.sample_dim,
        grid=grid,
        lead=config.lead,
        where=where,
    )
    layout = layout.with_history(config.history).with_leads(config.leads)
    if campaign.row_values:
        layout = replace(layout, step=None)
    if config.mask_of_step is not None:
        layout = _with_mask_of_step(layout, config.mask_of_step, where)
    if campaign.mask is not None:
        valid = campaign.mask.along(tuple(layout.grid))
        assert valid is not None  # `with_mask` took the same grid
        layout = replace(layout, mask=pack(valid))
    return layout


def _with_mask_of_step(layout: Layout, name: str, where: str) -> Layout:
    variable = next((v for v in layout.inputs if v.name == name), None)
    if variable is None or not variable.is_field:
        raise DataError(
            "no single field of the grid",
            where=f"{where}: data.mask_of_step, {name}",
            allowed=", ".join(v.name for v in layout.inputs if v.is_field),
        )
    return replace(layout, mask_of_step=name)


def accepts(config: DataConfig) -> Accepts:
    """Return which differences from its training data an emulator allows.

    Variables that a use does not read, such as the outputs in a prediction, may be missing: opening
    the files refuses a missing one that it reads, and `matched` compares grids.
    """
    anyhow = config.lead == 0 or config.time_steps == "input"
    return Accepts(
        grid="any",
        step="any" if anyhow else "same",
        uneven=anyhow,
        optional="any",
    )


def converted(data: Data, differences: Sequence[Difference], trained: DataFacts | None) -> Data:
    """Return data whose windows and coordinates are in the units and directions of the training.

    Raises:
        DataError: a coordinate whose unit does not convert.
    """
    lines, reversed_dims = _conversions(differences)
    if shifted := sorted(lines.keys() & (data.campaign.options.offsets or {}).keys()):
        text = f"{shifted[0]} is in another unit, and data.offsets is in that of the training"
        raise DataError(text, where=data.where, fix="convert the file")
    dataset = convert(data.dataset, [d for d in differences if not _is_transposed(d)])
    layout = replace(data.layout, areas=areas_in(dataset, list(data.layout.grid)))
    layout = _with_flipped_mask(layout, reversed_dims)
    if trained is not None:
        dataset = _on_trained_coordinates(dataset, trained, data.facts, data.where)
        layout = _with_coordinates(layout, dataset)
    return replace(data, dataset=dataset, layout=layout, lines=lines, reversed_dims=reversed_dims)


def _with_flipped_mask(layout: Layout, reversed_dims: Sequence[str]) -> Layout:
    """Return a layout with the mask in the directions in which windows are read."""
    valid = layout.valid
    if valid is None:
        return layout
    axes = tuple(k for k, dim in enumerate(layout.grid) if dim in reversed_dims)
    return replace(layout, mask=pack(np.flip(valid, axes)))


def matched(
    data: Data, config: DataConfig, like: Layout, *, warn: bool, compare_step: bool = True
) -> Data:
    """Return data with the dims of fields in the order of a trained emulator.

    Args:
        data: of the emulator's variables.
        config: the data section.
        like: layout of the emulator.
        warn: whether the data are others than the job's: parameters outside the range of the
            training are told, steps outside it refused.
        compare_step: whether to compare steps as bare numbers, without facts of the training.

    Raises:
        DataError: dims, a mask or a step that do not match.
    """
    layout = data.layout
    if sorted(layout.grid) == sorted(like.grid) and list(layout.grid) != list(like.grid):
        # Windows are read in the order of the layout: that of the training.
        layout = _layout(config, data.campaign, data.dataset, list(like.grid), data.where)
        layout = _with_flipped_mask(layout, data.reversed_dims)
    _require_like(layout, like, data.where, compare_step=compare_step)
    if warn and like.step_range is not None and STEP in data.campaign.row_values:
        require_trained_steps(data.campaign, data.lines, like.step_range, config.lead, data.where)
    if warn:
        _warn_outside(data, like)
    return replace(data, layout=layout)


def _facts(dataset: xr.Dataset, layout: Layout) -> DataFacts:
    """Return the facts of the stored variables; the sample dim is the time, whatever its name."""
    names = [n for n, v in layout.variables.items() if v.stored and n in dataset]
    facts = of_dataset(dataset, names)
    dims = tuple(
        replace(d, role="time")
        if d.name == layout.sample_dim
        else replace(d, role="space", period=None, repeats=False)
        if d.role == "time"
        else d
        for d in facts.dims
    )
    low_high = layout.parameter_ranges
    parameters = {n: (low, high, "") for n, (low, high) in low_high.items()}
    return replace(facts, dims=dims, parameters=parameters)


def _on_trained_coordinates(
    dataset: xr.Dataset, trained: DataFacts, facts: DataFacts, where: str
) -> xr.Dataset:
    """Return a dataset with space coordinates in the units of the training; times stay."""
    dims = {d.name: d for d in facts.dims}
    for dim in trained.dims:
        if dim.role != "time" and dim.name in dims:
            dataset = convert_coordinate(dataset, dim, dims[dim.name], where)
    return dataset


def _with_coordinates(layout: Layout, dataset: xr.Dataset) -> Layout:
    """Return a layout with the coordinates of a dataset."""
    coordinates = {
        d: np.asarray(dataset[d].values, np.float64).tolist() for d in layout.coordinates
    }
    return replace(layout, coordinates=coordinates)


def _is_transposed(difference: Difference) -> bool:
    # Windows are read in the order of the layout, whatever that of the file.
    return difference.conversion is not None and difference.conversion.action == "transpose"


def _conversions(
    differences: Sequence[Difference],
) -> tuple[dict[str, tuple[float, float]], tuple[str, ...]]:
    """Return what windows convert when they are read: units, and dims read from their end."""
    changes = [d.conversion for d in differences if d.conversion is not None]
    lines = {c.target: (c.factor, c.offset) for c in changes if c.action == "affine"}
    return lines, tuple(c.target for c in changes if c.action == "flip")


def _require_unit(
    campaign: Campaign, dataset: xr.Dataset, name: str, expected: str, where: str
) -> None:
    if name not in campaign.names and name not in campaign.channels:
        raise ConfigError(
            f"a unit is given for {name!r}, which is not read", allowed=", ".join(campaign.names)
        )
    for channel in campaign.names.get(name, (name,)):
        unit = dataset[channel].attrs.setdefault("units", expected)
        if not same_unit(str(unit), expected):
            raise DataError(
                f"unit {str(unit)!r}, but {expected!r} is expected",
                where=f"{where}: variable {name}",
                fix=f"convert the file, or expect {str(unit)!r}",
            )


def _warn_outside(data: Data, like: Layout) -> None:
    """Warn of parameters outside the range of the training split."""
    for name, (low, high) in like.parameter_ranges.items():
        factor, offset = data.lines.get(name, (1.0, 0.0))
        values = data.campaign.parameters[name] * factor + offset
        outside = np.flatnonzero((values < low) | (values > high))
        if len(outside):
            worst = int(outside[np.argmax(np.maximum(low - values, values - high)[outside])])
            log.warning(
                "%s is %g in simulation %s; the emulator learned from %g to %g: "
                "it extrapolates in %d of %d simulations",
                name,
                values[worst],
                data.campaign.labels[worst],
                low,
                high,
                len(outside),
                len(values),
            )


def _require_like(
    actual: Layout, expected: Layout, where: str, *, compare_step: bool = True
) -> None:
    """Check that dims, mask and step of a file are those of the training data.

    The grid may differ; `transfer.on_grid` handles that.

    Args:
        actual: layout of the file.
        expected: layout of the training.
        where: the file, for messages.
        compare_step: whether to compare steps as bare numbers, without facts of the training.

    Raises:
        DataError: other dims, another mask on the same grid, or another step.
    """
    for name, variable in expected.variables.items():
        other = actual.variables.get(name)
        if other is None:
            parts = {f"{name}_real", f"{name}_imag"} <= set(actual.variables)
            raise DataError(
                f"variable {name}: complex numbers" if parts else f"no variable {name}",
                where=where,
                allowed="real numbers, as in the training" if parts else "the trained variables",
            )
        if other.dims != variable.dims or (not variable.is_field and other.shape != variable.shape):
            raise DataError(
                f"dims {dict(zip(other.dims, other.shape, strict=True))}",
                where=f"{where}: variable {name}",
                allowed=str(dict(zip(variable.dims, variable.shape, strict=True))),
            )
    if actual.mask != expected.mask and actual.grid == expected.grid:
        raise _other_mask(actual, expected, where)
    a, b = actual.step, expected.step
    if compare_step and a is not None and b is not None and abs(a - b) > 1e-2 * abs(b):
        raise DataError(
            f"a step of {a:g} along {expected.sample_dim}", where=where, allowed=f"{b:g}"
        )


def _other_mask(actual: Layout, expected: Layout, where: str) -> DataError:
    """Return the error for another mask of the same grid, with the first cell that differs."""
    shape = tuple(expected.grid.values())
    here, trained = (
        np.ones(shape, bool) if m is None else m for m in (actual.valid, expected.valid)
    )
    cell = np.argwhere(here != trained)[0]
    place = ", ".join(f"{dim}={index}" for dim, index in zip(expected.grid, cell, strict=True))
    state = "valid" if here[tuple(cell)] else "not valid"
    return DataError(
        f"a mask of {here.sum()} valid cells; the first that differs is {place}, here {state}",
        where=where,
        allowed=f"the mask of the training data, of {trained.sum()}",
    )

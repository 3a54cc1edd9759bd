"""Fields and parameters of the simulations of a campaign."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.core.units import same_unit, stated_unit
from scitoolkit.forecasting.config import FieldConfig
from scitoolkit.io.campaign.campaign import Campaign, open_campaign
from scitoolkit.io.campaign.campaign_layout import SIMULATION, CampaignOptions
from scitoolkit.io.campaign.files import campaign_files
from scitoolkit.io.campaign.headers import read_header
from scitoolkit.io.campaign.more_layouts import layout_of
from scitoolkit.io.campaign.open import OpenCampaign
from scitoolkit.io.campaign.parameters import parameter
from scitoolkit.io.campaign.plain import Plain
from scitoolkit.io.fields import open_fields
from scitoolkit.io.table import is_table


def fields_of(config: FieldConfig) -> Generator[tuple[str, xr.DataArray], None, None]:
    """Yield the name and the lazily opened field of each simulation.

    Raises:
        DataError: unusable file or variable, or simulations that differ in layout or units.
    """
    files = campaign_files(config.path)
    if len(files) == 1 and is_table(files[0]):
        units = {config.variable: config.units} if config.units else None
        with open_fields(files[0], [config.variable], units=units) as dataset:
            yield str(files[0]), dataset[config.variable]
        return
    if any(map(is_table, files)):
        raise DataError(
            f"{len(files)} files, of which some are tables",
            where=str(config.path),
            allowed="one table",
            fix="one table with a column for each series, or with a column of their names",
        )
    header = read_header(files[0])
    layout, options = (
        layout_of(header),
        CampaignOptions(dims=config.dims, files=config.files, gaps="allow"),
    )
    array = layout.arrays(header, options).get(config.variable)
    grouped = layout is Plain and array is not None and config.variable not in header.variables
    several = layout is not Plain or (array is not None and SIMULATION in array.roles)
    if len(files) == 1 and not several and not grouped and "/" not in config.variable:
        units = {config.variable: config.units} if config.units else None
        with open_fields(files[0], [config.variable], units=units, dims=config.dims) as dataset:
            yield str(files[0]), dataset[config.variable]
        return
    campaign = open_campaign(_given(config.path), [config.variable], options)
    channels = campaign.names[config.variable]
    if len(channels) > 1:
        raise DataError(
            f"{config.variable} has {len(channels)} components",
            where=str(files[0]),
            allowed=", ".join(channels),
            fix=f"data.variable={channels[0]}",
        )
    plain = layout is Plain and not grouped
    coordinates = _coordinates(config, files[0]) if plain else {}
    opened = OpenCampaign(campaign)
    for number, label in enumerate(campaign.labels):
        field = opened.channels(number)[channels[0]]
        space = set(field.dims) - {options.sample_dim}
        along_space = {n: c for n, c in coordinates.items() if set(c.dims) <= space}
        if number and along_space:
            _require_same_points(config, along_space, _file_of(campaign, number), files[0])
        _require_units(config, campaign, field)
        yield label, field.assign_coords(along_space).rename(config.variable)


def simulation_parameters(config: FieldConfig, name: str) -> tuple[np.ndarray, str]:
    """Return the values (simulation,) of a parameter, in the order of `fields_of`, and their unit.

    Raises:
        DataError: a simulation lacks the parameter or has an unusable value.
    """
    variable = config.variable or config.variables[0]
    options = CampaignOptions(dims=config.dims, files=config.files, gaps="allow")
    campaign = open_campaign(_given(config.path), [variable], options)
    return parameter(campaign, name, config.parameter_table)


def _given(path: Path | list[Path]) -> Path | list[Path]:
    return path[0] if isinstance(path, list) and len(path) == 1 else path


def _coordinates(config: FieldConfig, file: Path) -> dict[str, xr.DataArray]:
    """Return the numeric spatial coordinates of a file, including two-dimensional latitudes."""
    with open_fields(file, [config.variable], dims=config.dims) as dataset:
        return {
            str(n): c.load()
            for n, c in dataset[config.variable].coords.items()
            if c.ndim and c.dtype.kind in "fiu"
        }


def _file_of(campaign: Campaign, simulation: int) -> Path:
    """Return the first file of a simulation."""
    segments = campaign.segments
    return Path(segments.path(int(np.flatnonzero(segments.simulation == simulation)[0])))


def _require_same_points(
    config: FieldConfig, coordinates: dict[str, xr.DataArray], file: Path, first: Path
) -> None:
    """Refuse a simulation on other points; their order is that of the campaign.

    Raises:
        DataError: with both ranges.
    """
    for name, own in _coordinates(config, file).items():
        reference = coordinates.get(name)
        if reference is None or reference.ndim != 1 or own.shape != reference.shape:
            continue
        if own.attrs.get("units") != reference.attrs.get("units"):
            continue  # the campaign compares points in other units
        spacing = abs(float(np.median(np.diff(reference.values)))) if own.size > 1 else 1.0
        points = [c.values.astype(np.float64) for c in (reference, own)]
        if "east" in str(own.attrs.get("units", "")):
            # Longitudes of one meridian, of which -1e-9 is the first and not the last.
            points = [(p + 0.1 * spacing) % 360.0 for p in points]
        reference_points, own_points = map(np.sort, points)
        if not np.allclose(reference_points, own_points, rtol=0, atol=0.01 * spacing):
            ends = [f"{c.values[0]:g} to {c.values[-1]:g}" for c in (reference, own)]
            raise DataError(
                f"{name} runs from {ends[1]}",
                where=f"{file}: variable {config.variable}",
                allowed=f"{ends[0]}, as in {first}",
                fix="interpolate all simulations to one grid",
            )


def _require_units(config: FieldConfig, campaign: Campaign, field: xr.DataArray) -> None:
    stated = stated_unit(field.attrs) or config.units
    if config.units and not same_unit(str(stated), config.units):
        raise DataError(
            f"unit {stated!r}",
            where=f"{campaign.files[0]}: variable {config.variable}",
            allowed=repr(config.units),
        )

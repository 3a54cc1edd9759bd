"""Starter configuration of a forecast, derived from the contents of the data file."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.starter import CommentedLines, DataToStart
from scitoolkit.forecasting.data import is_panel
from scitoolkit.io.campaign.campaign import open_campaign
from scitoolkit.io.campaign.campaign_layout import CampaignOptions
from scitoolkit.io.campaign.files import campaign_files
from scitoolkit.io.campaign.open import OpenCampaign
from scitoolkit.io.campaign.survey import survey
from scitoolkit.io.coordinates import find_time_dim
from scitoolkit.io.fields import open_fields
from scitoolkit.io.roles import TIME_NAMES
from scitoolkit.io.table import is_table

if TYPE_CHECKING:
    import xarray as xr

_LONGEST = 8


def starter(data: DataToStart) -> str:
    """Return a short, commented configuration of a forecast that runs without changes.

    Raises:
        DataError: no variable has a time dim, or fewer than 16 steps.
    """
    paths = Path(data.files[0]) if len(data.files) == 1 else [Path(f) for f in data.files]
    files = campaign_files(paths)
    first, dims = files[0], list(data.dims) or None
    remarks: list[str] = []
    with open_fields(first, dims=dims) as dataset:
        timed = _timed({str(n): a for n, a in dataset.data_vars.items()})
        panel = max((a.ndim for a in timed.values()), default=1) > 1 and (
            is_table(first) or _has_series(dataset, timed)
        )
        gap = max(map(_longest_gap, timed.values())) if panel else 0
    if not timed and not is_table(first):
        # Files without names of dims, and fields in groups.
        surveyed = survey(data.files, data.dims)
        names = list(surveyed.options.dims or ())
        if names and not dims:
            dims = [_vector_of_times(first) or names[0], *names[1:]]
            remarks = [f"the file does not name its dims: {', '.join(dims)} is a guess"]
        campaign = open_campaign(paths, surveyed.moving, CampaignOptions(dims=dims, gaps="allow"))
        fields = OpenCampaign(campaign).channels(0)
        timed = _timed({n: fields[campaign.names[n][0]] for n in surveyed.moving})
    if not timed:
        raise DataError(
            "no variable has a time dim",
            where=str(first),
            allowed="a dim called time, or with CF attributes of time",
            fix=f"scitoolkit init forecast {first.name} --dims time,y,x, with a name for each dim",
        )
    name, array = max(timed.items(), key=lambda item: item[1].ndim)
    others = [n for n, a in timed.items() if n != name and (a.ndim > 1 or array.ndim == 1)]
    steps = array.sizes[find_time_dim(array)]
    cells = array.size // steps
    length = min(_LONGEST, steps // 16)
    if length < 1:
        raise DataError(
            f"{steps} time steps",
            where=f"{first}: variable {name}",
            allowed="16 or more",
            fix="a longer record",
        )
    count = 1
    if array.ndim > 1 and not panel:
        options = CampaignOptions(dims=dims, gaps="allow")
        count = open_campaign(paths, [name], options).index.num_simulations
    units = array.attrs.get("units")
    about = f"A forecast of {name}: {steps} steps, {length} in, {length} out."
    lines = CommentedLines(about, *remarks)
    lines.key("domain", "forecasting")
    fill = gap if 0 < gap <= length else None
    why = "" if fill is None else "fill: as many missing values in a row are interpolated"
    lines.section("data", why, path=data.path, variable=name, units=units, dims=dims, fill=fill)
    if others:
        lines.comment(f"  variable: {', '.join(others)} can be forecast too")
    if count > 1:
        sizes = {"train": 0.7, "validation": 0.15, "test": 0.15}
        lines.key("split", sizes, f"of {count} simulations")
    else:
        lines.key("split", {"train": 0.625, "validation": 0.125, "test": 0.25}, "in time")
    lines.key("inputs", length, "number of input steps")
    lines.key("leads", length, "number of forecast steps")
    lines.section("pod", "modes of the network's subspace", rank=min(5, steps // 8, cells))
    lines.section(
        "training",
        epochs=60,
        batch_size=16,
        optimizer={"name": "adamw", "lr": 3e-3},
        early_stopping={"patience": 15},
    )
    return lines.text()


def _timed(fields: Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    """Return the fields of real numbers that have a time dim."""
    return {n: a for n, a in fields.items() if a.dtype.kind == "f" and find_time_dim(a)}


def _has_series(dataset: xr.Dataset, timed: Mapping[str, xr.DataArray]) -> bool:
    """Return whether the fields are series of stations, by CF's `featureType` or their names."""
    if any(a.ndim != 2 for a in timed.values()):
        return False
    if str(dataset.attrs.get("featureType", "")).lower() == "timeseries":
        return True
    return all(is_panel(a.isel({find_time_dim(a): 0}, drop=True)) for a in timed.values())


def _vector_of_times(file: Path) -> str | None:
    """Return the name of the vector of times of a file without names of dims, by which to call one.

    Reading takes a vector for the coordinate of the dim of its name.
    """
    with open_fields(file) as dataset:
        vectors = [str(n) for n, a in dataset.variables.items() if a.ndim == 1]
    return next((n for n in vectors if n.lower() in TIME_NAMES), None)


def _longest_gap(series: xr.DataArray) -> int:
    """Return the largest number of missing values in a row between two values of a series."""
    rows = np.isfinite(series.transpose(find_time_dim(series), ...).values)
    cells = rows.reshape(len(rows), -1).T
    steps = [b - a for cell in cells for a, b in pairwise(np.flatnonzero(cell))]
    return int(max(steps, default=1)) - 1

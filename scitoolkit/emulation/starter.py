"""Starter configuration of an emulator, derived from data files."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError

from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.core.starter import CommentedLines, DataToStart
from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.index import SampleIndex
from scitoolkit.io.campaign.mask import MISSING
from scitoolkit.io.campaign.masking import missing_cells
from scitoolkit.io.campaign.parameters import varying
from scitoolkit.io.campaign.rows import row_sets
from scitoolkit.io.campaign.sphere_cells import boundaries_of, dims_with_ends
from scitoolkit.io.campaign.split import CampaignSplit, split_campaign
from scitoolkit.io.campaign.survey import Survey, survey
from scitoolkit.io.campaign.windows import CampaignWindows

_SMALL = 64
_STEPS, _FEWEST = 2000, 300
_MINUTES = 1 << 16
"""Cells of a batch for which the most steps take some minutes on the cores of a laptop."""
_READ = 4
"""Simulations that are looked at for variables that never change."""


def starter(data: DataToStart) -> str:
    """Return a short commented configuration of an emulator that runs without changes."""
    surveyed = survey(data.files, data.dims, data.sample_dim, data.level, data.member)
    campaign, options = surveyed.campaign, surveyed.options
    rows = np.diff(campaign.index.bounds)
    grid = next(iter(campaign.channels.values())).shape
    lines = CommentedLines(
        f"An emulator: {'the state now -> the next one' if options.lead else 'a map of fields'}.",
        f"{campaign.layout}: {len(rows)} simulation{'s' * (len(rows) > 1)} of {_range(rows)} "
        f"rows, grid {' x '.join(map(str, grid))}",
        *surveyed.remarks,
    )
    if options.lead:
        rows_read = _rows_read(campaign)
        if steady := _resting(campaign, surveyed.moving, rows_read):
            lines.comment(", ".join(steady), "no change in the rows read: stays as it is")
        for name in _driving(campaign, surveyed.moving, rows_read):
            lines.comment(name, "alike in all simulations, as a driver is; one is in inputs alone")
    masked = missing_cells(campaign)
    uniform = _uniform(campaign, surveyed) if masked and options.lead else []
    if uniform:
        lines.comment(", ".join(uniform), "one value in all cells with data: left out")
    lines.key("domain", "emulation")
    still = [name for name in surveyed.still if name not in uniform]
    inputs = [*surveyed.moving, *still] if options.lead else still
    lines.section(
        "data",
        path=data.path,
        inputs=inputs,
        outputs=surveyed.moving,
        dims=list(options.dims) if options.dims else None,
        sample_dim=None if options.sample_dim == "time" else options.sample_dim,
        select=dict(options.select) if options.select else None,
        levels=None if options.levels == "dim" else options.levels,
        gaps="split" if len(campaign.index.breaks) else None,
        pattern=options.pattern,
        lead=None if options.lead else 0,
        mask=MISSING if masked else None,
    )
    for name, (low, high) in varying(campaign).items():
        lines.comment(
            f"data.parameters: [{name}]", f"{low:g} to {high:g}: an input of the emulator?"
        )
    _split(lines, surveyed, rows)
    if sphere := boundaries_of(campaign):
        lines.key("boundary", sphere, "by latitude and longitude")
    else:
        dims = next(iter(campaign.channels.values())).dims[-len(grid) :]
        ends = dims_with_ends(campaign)
        if circular := ", ".join(f"{dim}: circular" for dim in dims if dim not in ends):
            lines.comment(
                f"boundary: {{{circular}}}", "the dims that are periodic; others have walls"
            )
    lines.key("model", _network(grid, merges=not sphere))
    if options.lead:
        lines.comment("rollout: {steps: 2}", "also train on rollouts, for longer predictions")
    _training(lines, rows, grid)
    return lines.text()


def _rows_read(campaign: Campaign) -> dict[str, np.ndarray]:
    """Read the first, middle and last row of some simulations.

    Returns:
        (simulations, 3, *grid) values of each channel.
    """
    bounds = campaign.index.bounds[: _READ + 1]
    rows = [[a, (a + b - 1) // 2, b - 1] for a, b in itertools.pairwise(bounds)]
    windows = CampaignWindows(campaign, row_sets(campaign), np.arange(campaign.index.num_rows), [0])
    windows.allow_nan = True
    values = windows.read(np.array(rows).ravel())
    return {n: v.reshape(-1, 3, *v.shape[1:]) for n, v in values.items()}


def _resting(campaign: Campaign, names: list[str], rows: Mapping[str, np.ndarray]) -> list[str]:
    """Return the variables that are equal in the rows read of each simulation."""
    return [name for name in names if _equal_along(1, campaign, name, rows)]


def _driving(campaign: Campaign, names: list[str], rows: Mapping[str, np.ndarray]) -> list[str]:
    """Return the variables that change in time, and alike in all simulations, if others differ.

    A file does not say what drives a simulation and what it computes. Simulations from different
    states differ in all that they compute, from the first row to the last.
    """
    lengths = np.diff(campaign.index.bounds[: _READ + 1])
    if len(lengths) < 2 or np.ptp(lengths):  # rows read at other times
        return []
    alike = [
        name
        for name in names
        if _equal_along(0, campaign, name, rows) and not _equal_along(1, campaign, name, rows)
    ]
    return alike if len(alike) < len(names) else []


def _equal_along(axis: int, campaign: Campaign, name: str, rows: Mapping[str, np.ndarray]) -> bool:
    """Return whether all channels of a variable are the same along an axis of the rows read."""
    channels = [rows[channel] for channel in campaign.names[name]]
    firsts = [values.take([0], axis) for values in channels]
    return all(
        np.array_equal(v, np.broadcast_to(first, v.shape), equal_nan=True)
        for v, first in zip(channels, firsts, strict=True)
    )


def _uniform(campaign: Campaign, surveyed: Survey) -> list[str]:
    """Return the static variables with one value where the others have data, such as a mask."""
    windows = CampaignWindows(campaign, row_sets(campaign), np.arange(campaign.index.num_rows), [0])
    windows.allow_nan = True
    values = windows.read(np.array([0]))
    channels = [channel for name in surveyed.moving for channel in campaign.names[name]]
    valid = np.logical_and.reduce([np.isfinite(values[channel]) for channel in channels])
    return [
        name
        for name in surveyed.still
        if all(
            values[channel].shape == valid.shape and len(np.unique(values[channel][valid])) == 1
            for channel in campaign.names[name]
        )
    ]


def _range(rows: np.ndarray) -> str:
    low, high = int(rows.min()), int(rows.max())
    return str(low) if low == high else f"{low} to {high}"


def _network(grid: tuple[int, ...], *, merges: bool) -> dict[str, Any]:
    """Return a U-Net; small grids get fewer levels, as each halves the grid.

    Large fields of two dims are merged in patches of 2 x 2 cells: the stage that costs most then
    has a quarter of the nodes, so that more steps fit into the same time. Patches across a pole
    are approximate, and those of volumes merge eight cells.
    """
    levels = int(np.clip(np.log2(max(min(grid), 2)) - 2, 1, 4))
    if merges and levels == 4 and len(grid) == 2 and not any(size % 2 for size in grid):
        return {"name": "unet", "widths": [64, 96, 128], "patch": 2}
    return {"name": "unet", "widths": [32, 64, 96, 128][:levels]}


def _split(lines: CommentedLines, surveyed: Survey, rows: np.ndarray) -> None:
    """Write the first split that the data allow: by simulation, in time, without a test part."""
    window, fewest = surveyed.options.lead + 1, int(rows.min())
    shares = {"train": 0.7, "validation": 0.15, "test": 0.15}
    counts = {"train": fewest - 2 * window, "validation": window, "test": window}
    ways: list[tuple[dict[str, Any], str]] = [
        (shares, "whole simulations"),
        ({"by": "time", **shares}, "of each simulation"),
        ({"by": "time", **counts}, "rows of each simulation"),
    ]
    whole = {"by": "time", "train": fewest, "validation": 0, "test": 0}
    ways.append((whole, "too few rows for a test split"))
    for split, why in ways[0 if len(rows) >= 3 else 1 :]:
        if _has_windows(surveyed.campaign.index, window, split) or split is whole:
            lines.key("split", split, why)
            return


def _has_windows(index: SampleIndex, window: int, split: dict[str, Any]) -> bool:
    """Return whether each part of a split has a complete window."""
    try:
        parts = split_campaign(index, window, CampaignSplit(**split), own_test=True)
    except (ScitoolkitError, ValidationError):
        return False
    return all(any(len(rows) >= window for rows in parts[name]) for name in split if name in parts)


def _training(lines: CommentedLines, rows: np.ndarray, grid: tuple[int, ...]) -> None:
    frames, cells = int(rows.sum()), int(np.prod(grid))
    batch = int(np.clip(frames // 8, 1, 16 if cells <= _SMALL**2 else 4))
    # Each dim beyond two triples the weights of a convolution.
    share = batch * cells * 3 ** max(len(grid) - 2, 0) / _MINUTES
    lines.section(
        "training",
        "longer trainings err less; run --dry-run tells their time",
        steps=int(np.clip(round(_STEPS / share, -2), _FEWEST, _STEPS)),
        batch_size=batch,
        optimizer={"name": "adamw", "lr": 1e-3},
        schedule={"name": "cosine", "warmup_steps": 100},
        clip_norm=1.0,
    )

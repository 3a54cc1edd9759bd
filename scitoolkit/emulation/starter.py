"""Starter configuration of an emulator, derived from data files."""

from __future__ import annotations

import numpy as np

from scitoolkit.core.starter import DataToStart, Lines
from scitoolkit.io.campaign.mask import MISSING
from scitoolkit.io.campaign.masking import missing_cells
from scitoolkit.io.campaign.parameters import varying
from scitoolkit.io.campaign.survey import Survey, survey

_SMALL = 64


def starter(data: DataToStart) -> str:
    """Return a short commented configuration of an emulator that runs without changes."""
    found = survey(data.files, data.dims, data.sample_dim)
    campaign, options = found.campaign, found.options
    rows = np.diff(campaign.index.bounds)
    grid = next(iter(campaign.channels.values())).shape
    lines = Lines(
        f"An emulator: {'the state now -> the next one' if options.lead else 'a map of fields'}.",
        f"{campaign.layout}: {len(rows)} simulations of {_range(rows)} rows, grid "
        f"{' x '.join(map(str, grid))}",
        *found.remarks,
    )
    lines.key("domain", "emulation")
    inputs = [*found.moving, *found.still] if options.lead else found.still
    lines.section(
        "data",
        path=data.path,
        inputs=inputs,
        outputs=found.moving,
        dims=list(options.dims) if options.dims else None,
        sample_dim=None if options.sample_dim == "time" else options.sample_dim,
        gaps="split" if len(campaign.index.breaks) else None,
        pattern=options.pattern,
        lead=None if options.lead else 0,
        mask=MISSING if missing_cells(campaign) else None,
    )
    for name, (low, high) in varying(campaign).items():
        lines.comment(
            f"data.parameters: [{name}]", f"{low:g} to {high:g}: an input of the emulator?"
        )
    _split(lines, found, rows)
    dim = next(iter(campaign.channels.values())).dims[-1]
    lines.comment(f"boundary: {{{dim}: circular}}", f"if {dim} is periodic; else a wall")
    lines.key("model", {"name": "unet", "widths": _widths(grid)})
    if options.lead:
        lines.comment("rollout: {steps: 2}", "also train on rollouts, for longer predictions")
    _training(lines, rows, grid)
    return lines.text()


def _range(rows: np.ndarray) -> str:
    low, high = int(rows.min()), int(rows.max())
    return str(low) if low == high else f"{low} to {high}"


def _widths(grid: tuple[int, ...]) -> list[int]:
    """Return the widths of a U-Net; small grids get fewer levels, as each halves the grid."""
    levels = int(np.clip(np.log2(max(min(grid), 2)) - 2, 1, 4))
    return [32, 64, 96, 128][:levels]


def _split(lines: Lines, found: Survey, rows: np.ndarray) -> None:
    """Write a split by simulation if there are three or more, else by time."""
    if len(rows) >= 3:
        lines.key("split", {"train": 0.7, "validation": 0.15, "test": 0.15}, "whole simulations")
        return
    part = int(rows.min()) // 6
    window = found.options.lead + 1
    if part >= window:
        split = {"by": "time", "train": 0.7, "validation": 0.15, "test": 0.15}
        lines.key("split", split, "of each simulation")
    else:
        split = {"by": "time", "train": int(rows.min()), "validation": 0, "test": 0}
        lines.key("split", split, "too few rows for a test split")


def _training(lines: Lines, rows: np.ndarray, grid: tuple[int, ...]) -> None:
    frames, cells = int(rows.sum()), int(np.prod(grid))
    batch = int(np.clip(frames // 8, 1, 16 if cells <= _SMALL**2 else 4))
    lines.section(
        "training",
        steps=2000,
        batch_size=batch,
        optimizer={"name": "adamw", "lr": 1e-3},
        schedule={"name": "cosine", "warmup_steps": 100},
        clip_norm=1.0,
    )

"""Starter configuration of super-resolution, derived from data files."""

from __future__ import annotations

import math
from pathlib import Path

from scitoolkit.core.errors import DataError
from scitoolkit.core.starter import CommentedLines, DataToStart
from scitoolkit.io.campaign.files import campaign_files
from scitoolkit.io.campaign.mask import MISSING
from scitoolkit.io.campaign.masking import missing_cells
from scitoolkit.io.fields import open_fields
from scitoolkit.superresolution.config import FieldsConfig
from scitoolkit.superresolution.simulations import open_simulations

_LARGEST = 65


def starter(data: DataToStart) -> str:
    """Return a short commented configuration of super-resolution that runs without changes.

    Raises:
        DataError: no variable has two dims of at least 8 nodes.
    """
    sources = Path(data.files[0]) if len(data.files) == 1 else [Path(f) for f in data.files]
    with open_fields(campaign_files(sources)[0], dims=list(data.dims) or None) as dataset:
        rank = max((a.ndim for a in dataset.data_vars.values()), default=0)
        whole = [a for a in dataset.data_vars.values() if a.ndim == rank and rank > 1]
        if not whole:
            raise DataError("no field", where=str(data.files[0]))
        sizes = dict(zip(map(str, whole[0].dims), whole[0].shape, strict=True))
        fields = [str(a.name) for a in whole if a.dims == whole[0].dims]
    section = FieldsConfig(path=sources, fields=fields, dims=list(sizes))
    simulations = open_simulations(sources, section, keep=False)
    lengths = {len(block) for block in simulations.blocks}
    sizes[simulations.time] = min(lengths)
    every: dict[str, int] = {}
    size: dict[str, int] = {}
    for dim, nodes in sizes.items():
        step = next((e for e in (4, 3, 2) if (nodes - 1) % e == 0 and nodes <= _LARGEST), 4)
        if nodes >= 2 * step:
            every[dim] = step
            whole_steps = (min(nodes, _LARGEST) - 1) // step * step + 1
            unequal = dim == simulations.time and len(lengths) > 1
            size |= {dim: whole_steps} if whole_steps < nodes or unequal else {}
    if not every:
        raise DataError(f"dims {sizes}", where=str(data.files[0]), allowed="8 nodes or more")
    lines = CommentedLines(
        f"Fields between the nodes of a coarse grid: {', '.join(fields)} on {sizes}.",
        "The network is trained to restore the nodes that crop.every leaves out.",
    )
    lines.key("domain", "superresolution")
    mask = MISSING if missing_cells(simulations.opened.found) else None
    lines.section("data", path=data.path, fields=fields, dims=list(sizes), mask=mask)
    lines.comment("  periodic: {x: 1.0}", "periodic dims and their lengths")
    count = len(simulations)
    if count >= 3:
        sizes_of_parts = {"train": 0.7, "validation": 0.15, "test": 0.15}
        lines.key("split", sizes_of_parts, f"of {count} simulations")
    points = min(2048, math.prod(sizes.values()))
    lines.section(
        "crop", "training samples", size=size or None, every=every, points=points, per_epoch=64
    )
    if mask is None:
        lines.comment(
            "pde: {equations: {continuity: dif(u,x) + dif(w,z)}, weight: 0.01, points: 512}"
        )
    lines.section(
        "model",
        encoder={"widths": [16, 32], "channels": 16},
        decoder={"name": "mlp", "widths": [32, 32]},
    )
    lines.section("training", epochs=20, batch_size=2, optimizer={"name": "adamw", "lr": 1e-3})
    return lines.text()

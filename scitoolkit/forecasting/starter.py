"""Starter configuration of a forecast, derived from the contents of the data file."""

from __future__ import annotations

from pathlib import Path

from scitoolkit.core.errors import DataError
from scitoolkit.core.starter import CommentedLines, DataToStart
from scitoolkit.io.campaign.campaign import open_campaign
from scitoolkit.io.campaign.campaign_layout import CampaignOptions
from scitoolkit.io.campaign.files import campaign_files
from scitoolkit.io.coordinates import find_time_dim
from scitoolkit.io.fields import open_fields

_LONGEST = 8


def starter(data: DataToStart) -> str:
    """Return a short, commented configuration of a forecast that runs without changes.

    Raises:
        DataError: no variable has a time dim, or fewer than 16 steps.
    """
    paths = Path(data.files[0]) if len(data.files) == 1 else [Path(f) for f in data.files]
    first = campaign_files(paths)[0]
    with open_fields(first, dims=list(data.dims) or None) as dataset:
        fields = {str(n): a for n, a in dataset.data_vars.items() if a.ndim > 1}
        timed = {n: a for n, a in fields.items() if a.dtype.kind == "f" and find_time_dim(a)}
        if not timed:
            raise DataError(
                "no field has a time dim",
                where=str(first),
                allowed=", ".join(map(str, dataset.data_vars)),
            )
        name, array = max(timed.items(), key=lambda item: item[1].ndim)
        steps = array.sizes[find_time_dim(array)]
        units = array.attrs.get("units")
    length = min(_LONGEST, steps // 16)
    if length < 1:
        raise DataError(f"{steps} time steps", where=f"{first}: variable {name}", allowed="16")
    options = CampaignOptions(dims=list(data.dims) or None, gaps="allow")
    count = open_campaign(paths, [name], options).index.num_simulations
    lines = CommentedLines(f"A forecast of {name}: {steps} steps, {length} in, {length} out.")
    lines.key("domain", "forecasting")
    lines.section("data", path=data.path, variable=name, units=units, dims=list(data.dims) or None)
    if len(timed) > 1:
        others = ", ".join(n for n in timed if n != name)
        lines.comment(f"  variable: {others} can be forecast too")
    if count > 1:
        sizes = {"train": 0.7, "validation": 0.15, "test": 0.15}
        lines.key("split", sizes, f"of {count} simulations")
    else:
        lines.key("split", {"train": 0.625, "validation": 0.125, "test": 0.25}, "in time")
    lines.key("inputs", length, "number of input steps")
    lines.key("leads", length, "number of forecast steps")
    lines.section("pod", "modes of the network's subspace", rank=min(5, steps // 8))
    lines.section(
        "training",
        epochs=60,
        batch_size=16,
        optimizer={"name": "adamw", "lr": 3e-3},
        early_stopping={"patience": 15},
    )
    return lines.text()

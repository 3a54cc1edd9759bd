"""Rows and content of a campaign, by which a resumed run recognises its data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.processes import current_rank
from scitoolkit.io.campaign.campaign import Campaign

_BLOCKS, _BLOCK = 32, 4096
"""Number and bytes of the evenly spaced blocks of a file that are compared."""


def content_of(campaign: Campaign) -> dict[str, Any]:
    """Return the rows of each simulation and digests of parameters and files, as JSON types.

    Digests are those of sizes and evenly spaced blocks, not of dates, so that a copy of the files
    is the same data.

    Example:
        >>> import tempfile
        >>> from scitoolkit.io.campaign import CampaignOptions, open_campaign
        >>> path = f"{tempfile.mkdtemp()}/rows.npy"
        >>> np.save(path, np.zeros((4, 3)))
        >>> content_of(open_campaign(path, options=CampaignOptions(dims=["time", "x"])))["rows"]
        {'rows': 4}
    """
    rows = np.diff(campaign.index.bounds).tolist()
    files = [Path(path) for path in campaign.segments.used_paths()]
    names = _names(files)
    return {
        "rows": dict(zip(campaign.labels, rows, strict=True)),
        "parameters": {
            name: hashlib.sha256(values.astype("<f8").tobytes()).hexdigest()[:16]
            for name, values in campaign.parameters.items()
        },
        "files": {name: _digest(path) for name, path in zip(names, files, strict=True)},
    }


def record_content(run: Path, campaign: Campaign, where: str, *, resume: bool) -> None:
    """Store rows and content of the files of a run; compare those of a resumed run.

    Raises:
        DataError: the files changed since the run began.
    """
    stored, now = run / "content.json", content_of(campaign)
    if resume and stored.exists():
        require_same_content(json.loads(stored.read_text()), now, f"{where}, in the resumed run")
    elif current_rank() == 0:
        write_atomic(stored, json.dumps(now) + "\n")


def require_same_content(before: Mapping[str, Any], now: Mapping[str, Any], where: str) -> None:
    """Raise if rows or files differ.

    Args:
        before: `content_of` the campaign when a run began.
        now: of the campaign of the resumed run.
        where: for the message.

    Raises:
        DataError: with the first simulation or file that differs.
    """
    for key, noun in (("rows", "simulation"), ("parameters", "parameter"), ("files", "file")):
        old, new = before.get(key, {}), now[key]
        for name in [*old, *(n for n in new if n not in old)]:
            if old.get(name) == new.get(name):
                continue
            if name not in new:
                fault = "is missing"
            elif name not in old:
                fault = "is new"
            else:
                other = "other values" if key == "parameters" else "other content"
                fault = f"has {new[name]} rows" if key == "rows" else f"has {other}"
            raise DataError(
                f"{noun} {name} {fault}",
                where=where,
                allowed="the rows and files with which the run began"
                + (f": {old[name]} rows" if key == "rows" and name in old else ""),
                fix="restore the files, or begin a new run",
            )


def _names(files: list[Path]) -> list[str]:
    """Return names of files that are unique with as few folders as possible."""
    depth = 1
    while depth < 8:
        names = ["/".join(path.parts[-depth:]) for path in files]
        if len(set(names)) == len(names):
            return names
        depth += 1
    return [str(path) for path in files]


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    if path.is_dir():
        inner = sorted(f for f in path.rglob("*") if f.is_file())
        # A Zarr store has a file for each chunk: all sizes are compared, and the content of some.
        sizes = [f"{f.relative_to(path).as_posix()} {f.stat().st_size}" for f in inner]
        digest.update("\n".join(sizes).encode())
        chosen = np.linspace(0, len(inner) - 1, min(len(inner), _BLOCKS)).astype(int)
        for number in chosen.tolist():
            _add(digest, inner[number], 1)
    else:
        _add(digest, path, _BLOCKS)
    return digest.hexdigest()[:16]


def _add(digest: Any, path: Path, blocks: int) -> None:
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        digest.update(str(size).encode())
        for start in np.linspace(0, max(0, size - _BLOCK), blocks).astype(np.int64).tolist():
            file.seek(start)
            digest.update(file.read(_BLOCK))

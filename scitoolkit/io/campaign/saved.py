"""Storage of measured moments by piece, and statistics of the Well's `stats.yaml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from scitoolkit.core.files import temporary_name
from scitoolkit.core.log import get_logger
from scitoolkit.core.yaml_file import read_yaml
from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.layouts import Well
from scitoolkit.io.campaign.measure import Measured
from scitoolkit.io.campaign.statistics import Moments
from scitoolkit.io.numpy_file import DAMAGED

_logger = get_logger(__name__)
_KINDS = ("values", "changes")


def load_moments(file: Path) -> dict[str, Measured]:
    """Return the moments in a file by the keys of their pieces; none if the file is damaged."""
    with suppress(OSError, IndexError, *DAMAGED), np.load(file) as archive:
        keys, zeros = archive["keys"].tolist(), archive["zeros"].tolist()
        rows = [Measured(z) for z in zeros]
        for kind in _KINDS:
            for number, name in enumerate(archive[f"{kind}_names"].tolist()):
                counts = archive[f"{kind}_{number}_count"].tolist()
                parts = archive[f"{kind}_{number}_parts"]
                for row, count, part in zip(rows, counts, parts, strict=True):
                    if count:
                        getattr(row, kind)[name] = Moments.of(count, part)
        return dict(zip(keys, rows, strict=True))
    return {}


def save_moments(file: Path, keys: Sequence[str], rows: Sequence[Measured]) -> None:
    """Write moments to a file; log a warning if this fails."""
    keyed = [(key, row) for key, row in zip(keys, rows, strict=True) if key]
    if not keyed:
        return
    arrays = {
        "keys": np.array([key for key, _ in keyed]),
        "zeros": np.array([row.zeros for _, row in keyed]),
    }
    for kind in _KINDS:
        columns = [getattr(row, kind) for _, row in keyed]
        names = list(dict.fromkeys(name for column in columns for name in column))
        arrays[f"{kind}_names"] = np.array(names, dtype=str)
        for number, name in enumerate(names):
            arrays |= _column(f"{kind}_{number}", [column.get(name) for column in columns])
    temporary = temporary_name(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as out:
            np.savez(out, allow_pickle=False, **arrays)
        # A rename is atomic, so that another process reads the former file or the new one.
        temporary.replace(file)
    except OSError as error:
        _logger.warning("the statistics cannot be cached (%s): %s", error.strerror, file)


def _column(name: str, found: Sequence[Moments | None]) -> dict[str, np.ndarray]:
    width = next(m.parts.shape[1] for m in found if m is not None)
    nothing = np.zeros((3, width))
    return {
        f"{name}_count": np.array([0 if m is None else m.count for m in found], np.int64),
        f"{name}_parts": np.stack([nothing if m is None else m.parts for m in found]),
    }


def well_statistics(campaign: Campaign) -> dict[str, tuple[float, float, float]] | None:
    """Return (mean, standard deviation, rms of the change) of each channel from `stats.yaml`.

    The Well stores the file next to `data`, measured over `data/train`. It is used if all files of
    the campaign are in that folder and all channels are in the file; otherwise None.
    """
    folders = {path.absolute().parent for path in campaign.files}
    if campaign.layout != Well.name or len(folders) != 1 or campaign.parameters or campaign.mask:
        return None
    folder = folders.pop()
    file = folder.parent.parent / "stats.yaml"
    if folder.name != "train" or folder.parent.name != "data" or not file.is_file():
        return None
    stated = read_yaml(file).value
    out = {}
    for channel in campaign.channels.values():
        name = channel.array.path.partition("/")[2]
        entries = [
            _entry(stated, kind, name, channel.components) for kind in ("mean", "std", "rms_delta")
        ]
        if entries[0] is None or entries[1] is None:
            _logger.info("%s has no %s: measuring the training part", file, name)
            return None
        out[channel.name] = (entries[0], entries[1], entries[2] or 1.0)
    _logger.info("statistics taken from %s", file)
    return out


def _entry(found: object, kind: str, name: str, components: Sequence[int]) -> float | None:
    section = found.get(kind) if isinstance(found, Mapping) else None
    value: object = section.get(name) if isinstance(section, Mapping) else None
    for number in components:
        if not isinstance(value, list) or number >= len(value):
            return None
        value = value[number]
    return float(value) if isinstance(value, int | float) else None

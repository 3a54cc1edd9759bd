"""openPMD in HDF5: meshes by iteration, with their units and places in SI.

Stored values are `unitSI` times smaller than values in SI, and places of cells `gridUnitSI` times;
both are stated for each record and iteration, so that they may change from one to the next. Source:
openPMD standard 1.1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign_layout import (
    SPACE,
    Array,
    CampaignLayout,
    CampaignOptions,
    array_of,
)
from scitoolkit.io.campaign.headers import FileHeader, StoredArray

_BASE = ("m", "kg", "s", "A", "K", "mol", "cd")
"""Base units of the powers in `unitDimension`, in their order."""


class OpenPmd(CampaignLayout):
    """openPMD in HDF5: `data/ITERATION/meshes/NAME[/COMPONENT]`, one sample per iteration."""

    name: ClassVar[str] = "openPMD"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether the file has the attribute `openPMD`."""
        return "openPMD" in header.attrs

    @classmethod
    def groups(cls, header: FileHeader) -> list[str]:
        """Return the iterations sorted by number."""
        iterations = {m[1] for n in header.variables if (m := re.match(r"data/(\d+)/", n))}
        return [f"data/{i}" for i in sorted(iterations, key=int)]

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return the meshes; `E/x` is a component of the vector E.

        Raises:
            DataError: the geometry is not Cartesian.
        """
        groups = cls.groups(header)
        if not groups:
            return {}
        start, arrays = f"{groups[0]}/{_meshes(header)}/", {}
        for path, stored in header.variables.items():
            if path.startswith(start) and stored.shape:
                short = path.removeprefix(f"{groups[0]}/")
                labels = cls._labels(header, stored, path)
                arrays[path.removeprefix(start)] = array_of(
                    short, stored, labels, cls.units(header, path)
                )
        return arrays

    @classmethod
    def units(cls, header: FileHeader, name: str) -> str:
        """Return the unit of stored values: the factor to SI, and the powers of its units.

        Values are read as stored, so that another factor is another unit.
        """
        record = _record(header, name)
        powers = np.ravel(record.get("unitDimension", ())).tolist()
        words = [
            f"{unit}{'' if power == 1 else f'{power:g}'}"
            for unit, power in zip(_BASE, powers, strict=False)
            if power
        ]
        factor = float(record.get("unitSI", 1.0))
        return " ".join([*([f"{factor:.12g}"] if factor != 1 else []), *words])

    @classmethod
    def coordinate(
        cls, header: FileHeader, group: str, dim: str, field: str = ""
    ) -> StoredArray | None:
        """Return the places of the cells of the first mesh with a dim, in metres."""
        start = f"{group}/{_meshes(header)}/"
        for path, stored in header.variables.items():
            if not path.startswith(start) or not stored.shape:
                continue
            labels = cls._labels(header, stored, path)
            if dim not in labels:
                continue
            record, axis = _record(header, path), labels.index(dim)
            # The attributes follow `axisLabels`, which dataOrder F reverses.
            stated = axis if record.get("dataOrder", "C") != "F" else len(labels) - 1 - axis
            spacing = np.ravel(record.get("gridSpacing", ()))
            offset = np.ravel(record.get("gridGlobalOffset", np.zeros(len(labels))))
            if not len(spacing) == len(offset) == len(labels):
                return None
            cells = np.arange(stored.shape[axis])
            points = (offset[stated] + cells * spacing[stated]) * float(
                record.get("gridUnitSI", 1.0)
            )
            return StoredArray(dim, points.shape, (dim,), {"units": "m"}, "<f8", values=points)
        return None

    @classmethod
    def _labels(cls, header: FileHeader, stored: StoredArray, path: str) -> list[str]:
        """Return the names of the axes, in the stored order."""
        where = f"{header.path}: {path}"
        stated = _record(header, path)
        if stated.get("geometry", "cartesian") != "cartesian":
            raise DataError(
                f"geometry {stated['geometry']}: the first axis is the mode number",
                where=where,
                allowed="cartesian",
                fix="write the fields on a Cartesian grid",
            )
        labels = stated.get("axisLabels", list(SPACE[: len(stored.shape)]))
        labels = [labels] if isinstance(labels, str) else [str(label) for label in labels]
        if len(labels) != len(stored.shape):
            raise DataError(f"axisLabels {labels}", where=where, allowed=f"{len(stored.shape)}")
        return labels[::-1] if stated.get("dataOrder", "C") == "F" else labels

    @classmethod
    def times(
        cls, header: FileHeader, group: str, options: CampaignOptions, fields: Iterable[str] = ()
    ) -> StoredArray | None:
        """Return the time of an iteration, in seconds."""
        time = header.attrs.get(f"{group}/time")
        if time is None:
            return None
        values = np.array([float(time) * float(header.attrs.get(f"{group}/timeUnitSI", 1.0))])
        return StoredArray(f"{group}/time", (1,), ("time",), {}, "<f8", values=values)

    @classmethod
    def step(cls, header: FileHeader, group: str) -> tuple[str, int] | None:
        """Return the file's name without the number of the iteration, and that number."""
        number = int(group.rpartition("/")[2])
        stem = header.path.stem
        if header.attrs.get("iterationEncoding") == "fileBased":
            stem = re.sub(r"_?\d+(?=\D*$)", "", stem)
        return stem, number

    @classmethod
    def remarks(cls, header: FileHeader) -> list[str]:
        """Return a line for each constant component, and for components at other places."""
        group = (cls.groups(header) or [""])[0]
        start = f"{group}/{_meshes(header)}/"
        lines, positions = [], {}
        for key, value in header.attrs.items():
            name, _, attribute = key.removeprefix(start).rpartition("/")
            if key.startswith(start) and attribute == "value":
                lines.append(f"{name} left out: a constant, {value}")
        for path, stored in header.variables.items():
            if path.startswith(start) and "position" in stored.attrs:
                positions[path.removeprefix(start)] = str(stored.attrs["position"])
        if len(set(positions.values())) > 1:
            places = ", ".join(f"{name} at {place}" for name, place in positions.items())
            lines.append(f"within a cell, values lie at different places, as stored: {places}")
        return lines


def _meshes(header: FileHeader) -> str:
    return str(header.attrs.get("meshesPath", "meshes/")).strip("/")


def _record(header: FileHeader, path: str) -> dict[str, Any]:
    """Return the attributes of a record, and of its component, which come first."""
    # A scalar record is a dataset with all attributes. A vector is a group: its components state
    # only `unitSI` and `position`.
    stored = header.variables.get(path)
    return {**_below(header, path.rpartition("/")[0]), **({} if stored is None else stored.attrs)}


def _below(header: FileHeader, group: str) -> dict[str, Any]:
    """Return the attributes of a group."""
    start = f"{group}/"
    return {
        k.removeprefix(start): v
        for k, v in header.attrs.items()
        if k.startswith(start) and "/" not in k.removeprefix(start)
    }

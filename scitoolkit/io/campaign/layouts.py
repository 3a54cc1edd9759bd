"""Layouts of the Well, PDEBench and Dedalus: the role of each axis of each variable.

A layout is recognised by names and attributes only. Sources: the Well 1.2 `docs/data_format.md`;
PDEBench `data_gen` and `models/fno/utils.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.campaign.campaign_layout import (
    COMPONENT,
    SIMULATION,
    SPACE,
    TIME,
    Array,
    CampaignLayout,
    CampaignOptions,
    array_of,
)
from scitoolkit.io.campaign.headers import FileHeader, StoredArray


class Well(CampaignLayout):
    """The Well: `tR_fields/NAME` (trajectory, time, space..., components...)."""

    name: ClassVar[str] = "the Well"
    time_path: ClassVar[str] = "dimensions/time"
    coordinate_path: ClassVar[str] = "dimensions/{dim}"
    _RANKS: ClassVar[tuple[str, ...]] = ("t0_fields", "t1_fields", "t2_fields")

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether the root has `n_trajectories` and there are groups of fields by rank."""
        fields = any(n.split("/")[0] in cls._RANKS for n in header.variables)
        return "n_trajectories" in header.attrs and fields

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return the fields with the axes stated by their attributes.

        Raises:
            DataError: a shape contradicts the attributes.
        """
        space = _spatial_names(header)
        arrays = {}
        for path, stored in header.variables.items():
            group, _, name = path.partition("/")
            if group not in cls._RANKS:
                continue
            rank = cls._RANKS.index(group)
            # The Well leaves out axes along which a field does not vary, such as a static mask.
            lead = [
                role
                for role, attr in ((SIMULATION, "sample_varying"), (TIME, "time_varying"))
                if stored.attrs.get(attr, True)
            ]
            dims = [*lead, *space, *[COMPONENT] * rank]
            if constant_dims(header, path):
                continue
            if len(dims) != len(stored.shape):
                raise DataError(
                    f"shape {stored.shape} does not have the {len(dims)} axes stated by its "
                    f"attributes ({', '.join(dims)})",
                    where=f"{header.path}: variable {path}",
                )
            arrays[name] = array_of(path, stored, dims)
        return arrays

    @classmethod
    def remarks(cls, header: FileHeader) -> list[str]:
        """Return the fields that are left out because they are constant along a space dim."""
        left_out = {p: d for p in header.variables if (d := constant_dims(header, p))}
        return [f"{p} is constant along {', '.join(d)}: not read" for p, d in left_out.items()]


def constant_dims(header: FileHeader, path: str) -> list[str]:
    """Return the space dims that a field of the Well leaves out, as it is constant along them."""
    stored = header.variables.get(path)
    stated = [] if stored is None else np.ravel(stored.attrs.get("dim_varying", [])).tolist()
    if all(stated):
        return []
    return [d for d, varies in zip(_spatial_names(header), stated, strict=False) if not varies]


def _spatial_names(header: FileHeader) -> list[str]:
    """Return the space dims of a file of the Well."""
    short = [n.removeprefix("dimensions/") for n in header.variables if n.startswith("dimensions/")]
    order = {"x": 0, "y": 1, "z": 2}
    rank = header.attrs.get("n_spatial_dims")
    names = sorted((n for n in short if n != "time"), key=lambda n: (order.get(n, 3), n))
    # HDF5 visits names alphabetically (`phi`, `r`, `theta`): only the attribute has the stored
    # order. With one dim it is read as a text, and there is nothing to order.
    stated = header.attrs.get("dimensions/spatial_dims", header.attrs.get("spatial_dims"))
    if isinstance(stated, list):
        names = [str(s) for s in stated]
    if rank is not None and len(names) != int(rank):
        raise DataError(
            f"dimensions {', '.join(names)}",
            where=str(header.path),
            allowed=f"{rank} space dims, as n_spatial_dims states",
        )
    return names


class PdeBench(CampaignLayout):
    """PDEBench's flat files: `tensor` or `density`, `Vx`, ...: (sample, time, x[, y, z]).

    The times may include the end of the last step.
    """

    name: ClassVar[str] = "PDEBench"
    time_path: ClassVar[str] = "t-coordinate"
    coordinate_path: ClassVar[str] = "{dim}-coordinate"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether PDEBench's coordinates and fields exist."""
        names = header.variables
        return "x-coordinate" in names and ("tensor" in names or {"density", "Vx"} <= set(names))

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return the fields; `nu` of Darcy flow has no time."""
        rank = sum(f"{d}-coordinate" in header.variables for d in SPACE)
        arrays = {}
        for path, stored in header.variables.items():
            if path.endswith("-coordinate") or len(stored.shape) < 1 + rank:
                continue
            # The solution of Darcy flow has a time axis of length 1, its coefficient `nu` has none.
            with_time = len(stored.shape) == 2 + rank
            dims = [SIMULATION, *[TIME] * with_time, *SPACE[:rank]]
            if len(dims) == len(stored.shape):
                arrays[path] = array_of(path, stored, dims)
        return arrays


class PdeBenchSeeds(CampaignLayout):
    """PDEBench's files with one group per simulation: `0000/data` (time, x[, y], channel)."""

    name: ClassVar[str] = "PDEBench, one group per simulation"
    time_path: ClassVar[str] = "{group}/grid/t"
    coordinate_path: ClassVar[str] = "{group}/grid/{dim}"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether numbered groups contain `data` and `grid`."""
        return any(n.endswith("/data") and n[:-5].isdigit() for n in header.variables) and any(
            "/grid/" in n for n in header.variables
        )

    @classmethod
    def groups(cls, header: FileHeader) -> list[str]:
        """Return the numbered groups."""
        numbered = [n[:-5] for n in header.variables if n.endswith("/data") and n[:-5].isdigit()]
        return sorted(numbered, key=int)

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return `data`, channels last."""
        stored = header.variables[f"{cls.groups(header)[0]}/data"]
        space = SPACE[: len(stored.shape) - 2]
        return {"data": array_of("data", stored, [TIME, *space, COMPONENT])}


class Dedalus(CampaignLayout):
    """Dedalus 3: `tasks/NAME` (write, components..., space...), times in `scales/sim_time`.

    The sets `_s1`, `_s2`, ... belong to one simulation, because their times continue.
    """

    name: ClassVar[str] = "Dedalus"
    time_path: ClassVar[str] = "scales/sim_time"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether tasks and the simulation time exist."""
        names = header.variables
        return "scales/sim_time" in names and any(n.startswith("tasks/") for n in names)

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return the tasks; dims with a scale are space dims, others components.

        Raises:
            DataError: a task was written as spectral coefficients.
        """
        arrays = {}
        for path, stored in header.variables.items():
            group, _, name = path.partition("/")
            if group != "tasks":
                continue
            space = stored.attrs.get("grid_space", True)
            if not np.all(space):
                raise DataError(
                    "spectral coefficients, not values on the grid",
                    where=f"{header.path}: variable {path}",
                    fix="add_task(..., layout='g')",
                )
            # A scale is named `x_hash_HASH`, where the hash is that of its grid: it differs with
            # the resolution, the dim does not.
            dims = [d.split("_hash_")[0] for d in stored.dims[1:]]
            roles = [COMPONENT if d.startswith("dim_") or not d else d for d in dims]
            arrays[name] = array_of(path, stored, [TIME, *roles])
        return arrays

    @classmethod
    def coordinate(
        cls, header: FileHeader, group: str, dim: str, field: str = ""
    ) -> StoredArray | None:
        """Return the scale of a space dim."""
        # Tasks at several resolutions leave several scales of a dim, and the name of the dim alone
        # does not tell which of them is that of a field.
        scales = [n for n in header.variables if n.startswith(f"scales/{dim}_hash_")]
        return header.get(scales[0]) if len(scales) == 1 else None


def missing_field(name: str, header: FileHeader, arrays: Mapping[str, object]) -> DataError:
    """Return the error for a variable that a file does not have."""
    for path in header.variables:
        if path.rpartition("/")[2] == name and (dims := constant_dims(header, path)):
            return DataError(
                f"constant along {', '.join(dims)} (dim_varying), which it is stored without",
                where=f"{header.path}: variable {path}",
                allowed="fields that are stored along all space dims",
                fix=f"leave out {name}, or store it along {', '.join(dims)}",
            )
    near = nearest_name(name, arrays)
    return DataError(
        f"variable {name!r} not found",
        where=str(header.path),
        allowed=", ".join(arrays),
        fix=f"did you mean {near}?" if near else "",
    )

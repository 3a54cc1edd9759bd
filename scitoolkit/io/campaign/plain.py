"""The layout of files without a convention of their own: roles by CF metadata and names of dims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign_layout import Array, CampaignLayout, CampaignOptions, array_of
from scitoolkit.io.campaign.dim_roles import (
    assigned_roles,
    chosen_dims,
    last_parts,
    named_dims,
    require_not_time,
    seen,
    seen_coordinates,
    stated_roles,
    views_of,
    with_time,
)
from scitoolkit.io.campaign.headers import FileHeader, StoredArray
from scitoolkit.io.roles import TIME_NAMES


class Plain(CampaignLayout):
    """NetCDF, Zarr, plain HDF5 and .npy: roles by the names of dims, variables in any group."""

    name: ClassVar[str] = "plain"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return True: the fallback if no other layout matches."""
        return True

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return all arrays with dims by path, and by the last part of the path if unique."""
        stated_options, apart = options, chosen_dims(header, options)
        arrays: dict[str, Array] = {}
        short: dict[str, list[str]] = {}
        for coordinates, variables in views_of(header):
            options = with_time(header, stated_options, coordinates)
            stated = stated_roles(coordinates)
            for path, stored in variables.items():
                dims = named_dims(header, stored, options)
                roles = assigned_roles(dims, options, apart, stated, header)
                require_not_time(dims, roles, apart, header)
                arrays[path] = array_of(path, stored, roles)
                short.setdefault(path.rpartition("/")[2], []).append(path)
        unique = {n: arrays[p[0]] for n, p in short.items() if len(p) == 1}
        return {**unique, **arrays}

    @classmethod
    def times(
        cls, header: FileHeader, group: str, options: CampaignOptions, fields: Iterable[str] = ()
    ) -> StoredArray | None:
        """Return the vector named like the sample dim, else a scalar with such a name.

        Raises:
            DataError: fields of several groups have different times.
        """
        fields = list(fields)
        options = with_time(header, options, seen_coordinates(header, next(iter(fields), "")))
        names = [options.sample_dim, *(TIME_NAMES if options.sample_dim == "time" else ())]
        dims = {d for v in header.variables.values() for d in named_dims(header, v, options)}
        # The user's dim is compared as written, common names also in capitals (`Time` of WRF).
        candidates = [
            path
            for path, stored in header.variables.items()
            if path.rpartition("/")[2].lower() in names or path.rpartition("/")[2] in names
            if len(stored.shape) <= 1
        ]
        shapes = {path: header.variables[path].shape for path in candidates}
        # cfgrib writes a scalar `step` beside the times, or a scalar `time` beside the steps: the
        # vector of a dim comes first, and of several that of the sample dim.
        candidates.sort(
            key=lambda path: (
                len(shapes[path]) != 1 or path.rpartition("/")[2] not in dims,
                path.rpartition("/")[2] != options.sample_dim,
                len(shapes[path]) != 1,
            )
        )
        # Most files have no groups.
        if not any("/" in path for path in (*candidates, *fields)):
            return header.get(candidates[0]) if candidates else None
        # Fields of one group and scales have the same times.
        fields = list(
            {
                (
                    f.rpartition("/")[0],
                    header.variables[f].scales if f in header.variables else (),
                ): f
                for f in reversed(fields)
            }.values()
        )[::-1]
        first: StoredArray | None = None
        for number, field in enumerate(fields or [""]):
            own = next((p for n in last_parts(candidates) if (p := seen(header, n, field))), "")
            times = header.get(own)
            if number and not _same_values(first, times):
                raise DataError(
                    f"{field} has other times than {fields[0]}",
                    where=str(header.path),
                    allowed="fields of one group, or with the same times",
                    fix="read each group by itself",
                )
            first = times if not number else first
        return first

    @classmethod
    def coordinate(
        cls, header: FileHeader, group: str, dim: str, field: str = ""
    ) -> StoredArray | None:
        """Return the vector named like the dim that a field sees."""
        return header.get(seen(header, dim, field, ranks=(1,)))


def _same_values(one: StoredArray | None, other: StoredArray | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.name == other.name:
        return True
    own, others = (np.asarray(times.points, np.float64) for times in (one, other))
    return np.array_equal(own, others, equal_nan=True) and all(
        one.attrs.get(key) == other.attrs.get(key) for key in ("units", "calendar")
    )

"""Further layouts: PDEBench's incompressible flow, PDEArena, JHTDB; parts of a domain.

Sources: PDEBench `data_gen/src/data_io.py`; PDEArena `data/twod`.
"""

from __future__ import annotations

import re
from typing import ClassVar

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign_layout import (
    COMPONENT,
    FIX_DIMS,
    SIMULATION,
    SPACE,
    TIME,
    Array,
    CampaignLayout,
    CampaignOptions,
    array_of,
)
from scitoolkit.io.campaign.headers import FileHeader, StoredArray
from scitoolkit.io.campaign.layouts import Dedalus, PdeBench, PdeBenchSeeds, Well
from scitoolkit.io.campaign.no_grid import NoGrid
from scitoolkit.io.campaign.openpmd import OpenPmd
from scitoolkit.io.campaign.plain import Plain


class PdeBenchIncompressible(CampaignLayout):
    """PDEBench's incompressible flow: `velocity` (sample, time, x, y, component), static `force`.

    All frames are allocated in advance; those after the attribute `latestIndex` are zeros.
    """

    name: ClassVar[str] = "PDEBench, incompressible"
    time_path: ClassVar[str] = "t"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether `velocity`, `t` and the attribute exist."""
        return "latestIndex" in header.attrs and {"velocity", "t"} <= set(header.variables)

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return `velocity` and `particles` with a time axis, `force` without."""
        rank = len(header.variables["velocity"].shape) - 3
        arrays = {}
        for path, stored in header.variables.items():
            timed = len(stored.shape) == rank + 3
            if timed or len(stored.shape) == rank + 2:
                dims = [SIMULATION, *[TIME] * timed, *SPACE[:rank], COMPONENT]
                arrays[path] = array_of(path, stored, dims)
        return arrays

    @classmethod
    def written(cls, header: FileHeader) -> int | None:
        """Return the number of written frames."""
        return int(header.attrs["latestIndex"]) + 1


class PdeArena(CampaignLayout):
    """PDEArena: `train/u` (sample, time, x, y); the group is the split.

    The file has no times, only the step `dt` of each sample.
    """

    name: ClassVar[str] = "PDEArena"
    _GROUPS: ClassVar[tuple[str, ...]] = ("train", "valid", "test")

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether a group named like a split contains `u`."""
        return any(f"{g}/u" in header.variables for g in cls._GROUPS)

    @classmethod
    def groups(cls, header: FileHeader) -> list[str]:
        """Return the existing splits."""
        return [g for g in cls._GROUPS if f"{g}/u" in header.variables]

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return the arrays with the dims of `u`."""
        group = cls.groups(header)[0]
        rank = len(header.variables[f"{group}/u"].shape)
        dims = [SIMULATION, TIME, *SPACE[: rank - 2]]
        return {
            path.partition("/")[2]: array_of(path.partition("/")[2], stored, dims)
            for path, stored in header.variables.items()
            if path.startswith(f"{group}/") and len(stored.shape) == rank
        }

    @classmethod
    def coordinate(
        cls, header: FileHeader, group: str, dim: str, field: str = ""
    ) -> StoredArray | None:
        """Return the vector named like the dim."""
        vector = header.get(f"{group}/{dim}")
        return vector if vector is not None and len(vector.shape) == 1 else None


class Jhtdb(CampaignLayout):
    """Cut-outs of the Johns Hopkins Turbulence Databases: `Velocity_0001` (z, y, x, component).

    The number at the end of a name is that of the time step; of one file, or of a file each.
    """

    name: ClassVar[str] = "JHTDB"
    coordinate_path: ClassVar[str] = "{dim}coor"
    _STEP: ClassVar[re.Pattern[str]] = re.compile(r"^([A-Za-z]+)_(\d+)$")

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether there are coordinates and fields with numbers of steps."""
        names = header.variables
        return {"xcoor", "ycoor", "zcoor"} <= set(names) and any(map(cls._STEP.match, names))

    @classmethod
    def groups(cls, header: FileHeader) -> list[str]:
        """Return a pattern of names for each time step."""
        numbers = {m[2] for name in header.variables if (m := cls._STEP.match(name))}
        return [f"{{}}_{number}" for number in sorted(numbers, key=int)]

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return the fields of the first step."""
        number = cls.groups(header)[0].rpartition("_")[2]
        return {
            m[1]: array_of(m[1], stored, ["z", "y", "x", COMPONENT])
            for name, stored in header.variables.items()
            if (m := cls._STEP.match(name)) and m[2] == number and len(stored.shape) == 4
        }

    @classmethod
    def step(cls, header: FileHeader, group: str) -> tuple[str, int] | None:
        """Return the file's name without the number of the step, and that number."""
        number = group.rpartition("_")[2]
        return re.sub(rf"_?0*{int(number)}(?=\D*$)", "", header.path.stem), int(number)


class OneOfManyParts(CampaignLayout):
    """Files of NEMO, BOUT++, MITgcm or CROCO with the part of the domain of one process.

    Each would be a separate simulation, with walls that are none.
    """

    name: ClassVar[str] = "part of a domain"

    @classmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether the file states a domain larger than its own cells."""
        return bool(cls._program(header)[0])

    @classmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Raise an error that explains how to join the files.

        Raises:
            DataError: always.
        """
        program, fix = cls._program(header)
        raise DataError(
            f"the part of the domain that one process of {program} wrote",
            where=str(header.path),
            allowed="files of the whole domain",
            fix=fix,
        )

    @classmethod
    def _program(cls, header: FileHeader) -> tuple[str, str]:
        """Return the program and how it joins its files; empty texts for whole domains."""
        attrs, variables = header.attrs, header.variables
        sizes = {d: n for v in variables.values() for d, n in zip(v.dims, v.shape, strict=True)}
        cells = max((int(np.prod(v.shape[-2:])) for v in variables.values()), default=0)
        # Files of a single process may state it too: the largest field shows whether it is whole.
        whole = [n for n in np.ravel(attrs.get("DOMAIN_size_global", [])) if _is_whole(n)]
        if len(whole) == 2 and whole[0] * whole[1] > cells:
            return "NEMO", "rebuild_nemo NAME NUMBER_OF_FILES"
        # BOUT++ states the size of the whole domain in each file; guard cells make a part larger.
        if "MXSUB" in variables and any(_scalar(header, f"n{d}") > sizes.get(d, 1) for d in "xy"):
            return "BOUT++", "boutdata.squashoutput.squashoutput(FOLDER)"
        pairs = [(attrs.get(f"N{d}", 0), attrs.get(f"sN{d}", 0)) for d in "xy"]
        if any(_is_whole(a) and _is_whole(b) and a > b for a, b in pairs):
            return "MITgcm", "gluemncbig -o OUT IN.*"
        # CROCO: numbers of the part along xi and eta, then how many parts there are along them.
        parts = np.ravel(attrs.get("partition", []))
        if len(parts) == 4 and all(map(_is_whole, parts)) and parts[2] * parts[3] > 1:
            return "CROCO", "ncjoin IN.*"
        return "", ""


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _scalar(header: FileHeader, name: str) -> float:
    """Return a number of a file, 0 without one."""
    stored = header.get(name)
    values = None if stored is None else stored.values
    return 0.0 if values is None or values.shape else float(values)


LAYOUTS: tuple[type[CampaignLayout], ...] = (
    Well,
    PdeBench,
    PdeBenchIncompressible,
    PdeBenchSeeds,
    PdeArena,
    Dedalus,
    OpenPmd,
    Jhtdb,
    NoGrid,
    OneOfManyParts,
)


def layout_of(header: FileHeader) -> type[CampaignLayout]:
    """Return the layout of a file.

    Raises:
        DataError: several layouts match.
    """
    # No order of preference: where two layouts match, the axes of one of them would be wrong.
    matching = [layout for layout in LAYOUTS if layout.matches(header)]
    if len(matching) > 1:
        raise DataError(
            f"ambiguous layout: {' or '.join(f.name for f in matching)}",
            where=str(header.path),
            fix=FIX_DIMS,
        )
    return matching[0] if matching else Plain

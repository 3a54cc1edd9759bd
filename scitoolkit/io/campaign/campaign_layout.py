"""What a layout states of a file: groups, arrays with the role of each axis, times, coordinates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from scitoolkit.core.data_facts import MEANINGS
from scitoolkit.io.campaign.headers import FileHeader, StoredArray

TIME, SIMULATION, COMPONENT = "@time", "@simulation", "@component"
SPACE = ("x", "y", "z")
FIX_DIMS = "data.dims=[...], one name for each dim, in the stored order"


@dataclass(frozen=True)
class CampaignOptions:
    """Settings of a campaign that override what is detected in the files.

    Attributes:
        sample_dim: the dim along which samples are counted; `time` also accepts t, step, ...
        dims: names of the dims of plain HDF5 and .npy files.
        grid: the space dims, which are then treated neither as components nor as simulations.
        files: whether each file is a simulation, or all files are parts of one.
        pattern: pattern of the names of single-sample files, `run{simulation}_t{step}.h5`.
        lead: number of samples from input to output; with 0, samples need no order.
        on_error: `skip` skips simulations that cannot be read or do not match the others.
        gaps: what missing times within a simulation do: `refuse` it, `split` it into stretches
            that no window crosses, or nothing (`allow`), for a reader that knows where they are.
        steps: whether all simulations must have the `same` time step.
        select: {dim: value of the entry to read}, a level or a member; the number of the entry
            where the dim has no coordinate.
        levels: whether the vertical dim is a dim of the grid, or its entries are `channels`.
        staggered: whether fields on the faces of cells are read as `stored`, or as the means of
            neighbouring faces at the `centres`.
        offsets: {variable: number that is subtracted from it in float64 when it is read}.
    """

    sample_dim: str = "time"
    dims: Sequence[str] | Mapping[str, Sequence[str]] | None = None
    grid: Sequence[str] | None = None
    files: Literal["auto", "simulations", "parts"] = "auto"
    pattern: str | None = None
    lead: int = 1
    on_error: Literal["raise", "skip"] = "raise"
    gaps: Literal["refuse", "split", "allow"] = "refuse"
    select: Mapping[str, float] | None = None
    levels: Literal["dim", "channels"] = "dim"
    steps: Literal["same", "any"] = "same"
    staggered: Literal["stored", "centres"] = "stored"
    offsets: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Centring:
    """How an axis of an array is read at the centres of cells.

    Attributes:
        first: the first centre that is read.
        shift: number of the face below centre 0, None for an axis of centres.
        period: number of faces of a dim that closes, else 0.
    """

    first: int
    shift: int | None
    period: int = 0


@dataclass(frozen=True)
class Array:
    """Array of a file with the role of each axis.

    Attributes:
        path: name in the file, relative to the group of a simulation.
        shape: of the array.
        roles: for each axis TIME, SIMULATION, COMPONENT or the name of a space dim.
        units: as stated in the file.
        long_name: as stated in the file.
        centring: how each axis is read at the centres of cells; empty if all are as stored.
        offset: number that is subtracted from the values.
        standard_name, cell_methods, positive: of CF, as stated in the file.
    """

    path: str
    shape: tuple[int, ...]
    roles: tuple[str, ...]
    units: str = ""
    long_name: str = ""
    centring: tuple[Centring | None, ...] = ()
    offset: float = 0.0
    standard_name: str = ""
    cell_methods: str = ""
    positive: str = ""

    def attributes(self) -> dict[str, str]:
        """Return what the file states about the values, as attributes."""
        stated = "units", "long_name", *MEANINGS
        return {name: text for name in stated if (text := getattr(self, name))}

    def size(self, role: str) -> int | None:
        """Return the extent of the axis with a role; None without such an axis."""
        return self.shape[self.roles.index(role)] if role in self.roles else None


class CampaignLayout(ABC):
    """Base of a layout.

    Attributes:
        name: for messages.
        time_path: path of the times, with `{group}` for a simulation's group; "" for none.
        coordinate_path: path of a space dim's coordinate, also with `{dim}`; "" for none.
    """

    name: ClassVar[str]
    time_path: ClassVar[str] = ""
    coordinate_path: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def matches(cls, header: FileHeader) -> bool:
        """Return whether a file has this layout."""

    @classmethod
    def groups(cls, header: FileHeader) -> list[str]:
        """Return the groups that contain one simulation each; [""] without groups."""
        return [""]

    @classmethod
    @abstractmethod
    def arrays(cls, header: FileHeader, options: CampaignOptions) -> dict[str, Array]:
        """Return the fields by the names that users refer to them by."""

    @classmethod
    def times(
        cls, header: FileHeader, group: str, options: CampaignOptions, fields: Iterable[str] = ()
    ) -> StoredArray | None:
        """Return the times, (rows,) or (simulations, rows), of the fields with some paths."""
        return header.get(cls.time_path.format(group=group)) if cls.time_path else None

    @classmethod
    def coordinate(
        cls, header: FileHeader, group: str, dim: str, field: str = ""
    ) -> StoredArray | None:
        """Return the coordinate of a space dim, of one field where fields differ."""
        path = cls.coordinate_path
        return header.get(path.format(group=group, dim=dim)) if path else None

    @classmethod
    def units(cls, header: FileHeader, name: str) -> str:
        """Return the unit of an array, by its full name."""
        stored = header.variables.get(name)
        return "" if stored is None else str(stored.attrs.get("units", ""))

    @classmethod
    def remarks(cls, header: FileHeader) -> list[str]:
        """Return lines for the user about what is in the file but not read as it says."""
        return []

    @classmethod
    def written(cls, header: FileHeader) -> int | None:
        """Return the number of written rows if more were allocated; None if all were written."""
        return None

    @classmethod
    def step(cls, header: FileHeader, group: str) -> tuple[str, int] | None:
        """Return simulation and step of a group that is one sample, if the file states them."""
        return None


def array_of(
    path: str, stored: StoredArray, roles: Sequence[str], units: str | None = None
) -> Array:
    """Return the `Array` of a stored array with the given roles, and its unit by default."""
    stated: dict[str, Any] = {name: str(stored.attrs.get(name, "")) for name in MEANINGS}
    return Array(
        path,
        stored.shape,
        tuple(roles),
        str(stored.attrs.get("units", "")) if units is None else units,
        str(stored.attrs.get("long_name", "")),
        **stated,
    )

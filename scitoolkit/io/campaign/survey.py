"""Detection of a campaign's options and variables for a starter configuration."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign import Campaign, open_campaign
from scitoolkit.io.campaign.campaign_layout import COMPONENT, TIME, Array, CampaignOptions
from scitoolkit.io.campaign.dim_roles import auxiliary_names, named_dims, roles_of_dims
from scitoolkit.io.campaign.files import campaign_files
from scitoolkit.io.campaign.headers import FileHeader, full_name, read_header
from scitoolkit.io.campaign.more_layouts import layout_of
from scitoolkit.io.campaign.plain import Plain
from scitoolkit.io.campaign.told import arrays_without_numbers
from scitoolkit.io.loader.hdf5 import unfollowed_links
from scitoolkit.io.roles import SIMULATION_NAMES, TIME_NAMES

_STEP = ("t", "time", "step", "it", "iter", "frame", "snap", "snapshot", "dump", "plt", "n")
_MOST_SPACE = 3
_SIMULATION = ("s", "run", "sim", "simulation", "case", "seed", "traj", "member", "sample", "r")


@dataclass(frozen=True)
class Survey:
    """Detected campaign.

    Attributes:
        campaign: the opened campaign.
        options: options for `open_campaign`.
        moving: time-dependent variables on the largest grid.
        still: static variables on the same grid.
        remarks: guesses for the user to check.
    """

    campaign: Campaign
    options: CampaignOptions
    moving: list[str]
    still: list[str]
    remarks: list[str] = field(default_factory=list)


def survey(
    paths: Sequence[str],
    dims: Sequence[str] = (),
    sample_dim: str = "",
    level: str = "",
    member: str = "",
) -> Survey:
    """Detect the options and variables of a campaign.

    Args:
        paths: a file, a folder, a glob, or several files.
        dims: names of the dims, for files without names.
        sample_dim: the dim that counts samples, "" to read it from the files.
        level: the vertical coordinate to read, or `channels` for each level as a channel.
        member: the entry of the dim of simulations to read.

    Raises:
        DataError: the files are ambiguous, or have no field that changes in time.
    """
    path = paths[0] if len(paths) == 1 else list(paths)
    files = campaign_files(path)
    header = read_header(files[0])
    options, remarks = _named(header, len(files), dims)
    # A starter configuration has to open the files: gaps are split here and remarked on below.
    options = replace(options, sample_dim=sample_dim or options.sample_dim, gaps="split")
    _require_dim(header, sample_dim, options)
    options = _chosen(header, options, level, member)
    options, chosen = _without_single_entries(header, options)
    remarks += chosen
    single = _is_single(header, options)
    pattern = _pattern([os.path.basename(f) for f in files]) if single and len(files) > 1 else None
    if pattern:
        options = replace(options, pattern=pattern)
        remarks.append(f"names of files are assumed to follow {pattern}")
    moving, still, left_out = _variables(header, options, all_move=single)
    remarks += left_out + layout_of(header).remarks(header)
    remarks += [f"{name} left out: it holds no numbers" for name in arrays_without_numbers(header)]
    if header.format.native_hdf5:
        links = unfollowed_links(files[0]).items()
        remarks += [f"{name} left out: a link to {target}, not followed" for name, target in links]
    campaign = open_campaign(path, [*moving, *still], options)
    rows = campaign.index.num_rows
    # One row for each simulation: a map between fields of one sample, as for Darcy flow.
    if rows == campaign.index.num_simulations and still:
        options = replace(options, lead=0)
        campaign = open_campaign(path, [*moving, *still], options)
    elif rows == campaign.index.num_simulations:
        raise DataError(
            f"{rows} simulations of one row each: nothing changes in time",
            where=str(files[0]),
            fix="data.lead=0 with inputs and outputs, for a map within a sample",
        )
    if (gaps := len(campaign.index.breaks)) and options.lead:
        remarks.append(f"gaps in the times: {gaps}, which no window crosses (data.gaps)")
    return Survey(campaign, options, moving, still, remarks)


def _chosen(
    header: FileHeader, options: CampaignOptions, level: str, member: str
) -> CampaignOptions:
    """Return the options with the level and the member to read.

    Raises:
        DataError: no dim, or several, of that role; or no number.
    """
    roles = roles_of_dims(header, options)
    if level == "channels":
        options, level = replace(options, levels="channels"), ""
    select: dict[str, float] = {}
    for option, value, role in (("--level", level, "vertical"), ("--member", member, "simulation")):
        if not value:
            continue
        alike = [d for d, own in roles.items() if own == role]
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if len(alike) != 1 or not math.isfinite(number):
            raise DataError(
                f"{option} {value}: {', '.join(alike) or 'no dim'} for it",
                where=str(header.path),
                allowed="a number, in files with one such dim"
                + (", or channels" if option == "--level" else ""),
                fix="data.select: {DIM: VALUE}",
            )
        select[alike[0]] = number
    return replace(options, select=select or None)


def _without_single_entries(
    header: FileHeader, options: CampaignOptions
) -> tuple[CampaignOptions, list[str]]:
    """Return the options that select the entry of dims of one, in files of more than three dims."""
    if layout_of(header) is not Plain:
        return options, []
    arrays = {a.path: a for a in Plain.arrays(header, options).values()}
    crowded = [space for a in arrays.values() if len(space := _space(a)) > _MOST_SPACE]
    singles = dict.fromkeys(dim for space in crowded for dim, size in space if size == 1)
    select: dict[str, float] = {}
    for dim in singles:
        coordinate = Plain.coordinate(header, "", dim)
        values = None if coordinate is None else coordinate.points
        select[dim] = 0.0 if values is None else float(values[0])
    if not select:
        return options, []
    remarks = [f"{dim} has one entry, which is selected" for dim in select]
    return replace(options, select={**(options.select or {}), **select}), remarks


def _require_dim(header: FileHeader, name: str, options: CampaignOptions) -> None:
    """Raise if a named dim is none of the file's.

    Raises:
        DataError: with the dims there are.
    """
    stored = header.variables.values()
    dims = list(dict.fromkeys(d for v in stored for d in named_dims(header, v, options)))
    if name and name not in dims:
        raise DataError(
            f"no dim {name!r}", where=str(header.path), allowed=", ".join(dims), fix="--sample-dim"
        )


def _named(
    header: FileHeader, files: int, dims: Sequence[str]
) -> tuple[CampaignOptions, list[str]]:
    """Return options with guessed names for unnamed dims, and a remark about the guess.

    Raises:
        DataError: the names are ambiguous.
    """
    if dims:
        return CampaignOptions(dims=list(dims)), []
    if layout_of(header) is not Plain:
        return CampaignOptions(), []
    unnamed = [v for v in header.variables.values() if any(d.startswith("dim_") for d in v.dims)]
    rank = max((len(v.shape) for v in unnamed), default=0)
    if rank < 2 or any(len(v.shape) > rank for v in header.variables.values()):
        return CampaignOptions(), []
    fields = [v for v in unnamed if len(v.shape) == rank]
    of_times = [
        v.shape
        for path, v in header.variables.items()
        if path.rpartition("/")[2].lower() in TIME_NAMES and len(v.shape) < 2
    ]
    if rank < 4 and of_times and all(shape in ((), (1,)) for shape in of_times):
        names = ["z", "y", "x"][-rank:]
        return CampaignOptions(dims=names), [
            f"the file does not name its dims: {', '.join(names)} is a guess, beside its one time"
        ]
    stated = any(v.shape[:1] in of_times for v in fields)
    if rank > 3 or (rank == 2 and files > 1 and not stated):
        ways = "time,x or y,x" if rank == 2 else "time,z,y,x or simulation,time,y,x"
        raise DataError(
            f"{rank} dims without names: {ways}?",
            where=str(header.path),
            fix=f"--dims {ways.split(' or ')[0]}",
        )
    names = ["time", "x"] if rank == 2 else ["time", "y", "x"]
    if not stated:
        _require_no_numbers(header, [v.name for v in fields])
    return CampaignOptions(dims=names), [
        f"the file does not name its dims: {', '.join(names)} is a guess"
    ]


def _require_no_numbers(header: FileHeader, names: Sequence[str]) -> None:
    """Raise if arrays without named dims differ in a number only, as times of one variable do.

    Raises:
        DataError: with the arrays.
    """
    alike: dict[tuple[str, tuple[int, ...]], list[tuple[list[int], str]]] = {}
    for name in names:
        numbers = [int(n) for n in re.findall(r"\d+", name)]
        key = re.sub(r"\d+", "#", name), header.variables[name].shape
        alike.setdefault(key, []).append((numbers, name))
    for members in alike.values():
        columns = [sorted(set(column)) for column in zip(*(n for n, _ in members), strict=True)]
        changing = [column for column in columns if len(column) > 1]
        # Up to three from 0 or 1 on are components of a vector.
        if len(changing) != 1 or changing[0] in ([0, 1], [1, 2], [0, 1, 2], [1, 2, 3]):
            continue
        first = ", ".join(name for _, name in sorted(members)[:3])
        raise DataError(
            f"{first}, ... differ in a number only: they look like times of one variable, and "
            "would be read as variables",
            where=str(header.path),
            allowed="one array with the times along a dim; openPMD",
            fix="write the arrays of each variable one after another along a new first dim; "
            "--dims NAMES if they are variables",
        )


def _is_single(header: FileHeader, options: CampaignOptions) -> bool:
    """Return whether a file is a single sample: none of its fields has a time axis."""
    arrays = layout_of(header).arrays(header, options).values()
    return not any(TIME in a.roles for a in arrays if len(a.shape) > 1)


def _space(array: Array) -> tuple[tuple[str, int], ...]:
    pairs = zip(array.roles, array.shape, strict=True)
    return tuple((r, n) for r, n in pairs if not r.startswith("@"))


def _variables(
    header: FileHeader, options: CampaignOptions, all_move: bool
) -> tuple[list[str], list[str], list[str]]:
    """Return the time-dependent and the static fields on the largest grid, and what is left out."""
    arrays = layout_of(header).arrays(header, options)
    names: dict[str, str] = {}
    # An array is listed by its path, and by the last part of it where that is unique: the shorter
    # name is the user's.
    for name, array in sorted(arrays.items(), key=lambda item: len(item[0])):
        if name not in array.roles and name not in header.variables[_first(header, array)].dims:
            names.setdefault(array.path, name)
    _require_no_runs(header)
    auxiliary = auxiliary_names(header)
    listed = {names[a.path]: a for n, a in arrays.items() if a.path in names}
    fields = {n: a for n, a in listed.items() if _space(a) and a.path not in auxiliary}
    timed = [a for a in fields.values() if TIME in a.roles or all_move]
    if not timed:
        raise DataError(
            "no field with a time",
            where=str(header.path),
            allowed=", ".join(header.variables),
            fix="--dims NAMES, one for each dim, where the file names none",
        )
    # The most dims, then the most fields, then the most points: a profile is no field, and each
    # velocity of a staggered grid has more points than the cells that all other fields share.
    shared = Counter(tuple(sorted(_space(a))) for a in {a.path: a for a in timed}.values())
    grid = max(
        (_space(a) for a in timed),
        key=lambda s: (len(s), shared[tuple(sorted(s))], math.prod(n for _, n in s)),
    )
    here = {n: a for n, a in fields.items() if sorted(_space(a)) == sorted(grid)}
    moving = [n for n, a in here.items() if TIME in a.roles or all_move]
    coordinates = {d for v in header.variables.values() for d in v.dims}
    left_out = []
    for name, array in listed.items():
        if name in here or name in coordinates or not array.shape:
            continue
        pairs = zip(array.roles, array.shape, strict=True)
        dims = " x ".join(f"{role.lstrip('@')} {size}" for role, size in pairs)
        reason = (
            "describes other variables"
            if array.path in auxiliary
            else f"left out: its dims are {dims}, not the grid of {', '.join(moving)}"
        )
        left_out.append(f"{name} {reason}")
    return moving, [n for n in here if n not in moving], left_out


def _require_no_runs(header: FileHeader) -> None:
    """Raise if numbered groups that are named like simulations hold the same variables.

    Raises:
        DataError: with the groups.
    """
    runs: dict[str, set[tuple[str, tuple[int, ...]]]] = {}
    for path, stored in header.variables.items():
        group, _, name = path.partition("/")
        word = re.fullmatch(r"([A-Za-z]*)[_-]?\d+", group)
        if name and word and word[1].lower() in ("", *_SIMULATION, *SIMULATION_NAMES):
            # Without the first axis, as runs may differ in length.
            runs.setdefault(group, set()).add((name, stored.shape[1:]))
    if (
        layout_of(header) is Plain
        and len(runs) > 1
        and len(set(map(frozenset, runs.values()))) == 1
    ):
        raise DataError(
            f"the groups {', '.join(list(runs)[:3])}, ... hold the same variables: they look like "
            "simulations, and would be read as variables of one",
            where=str(header.path),
            allowed="a file or an entry of a dim for each simulation",
            fix="write one file for each group",
        )


def _first(header: FileHeader, array: Array) -> str:
    """Return the full name of an array in the first group of a file."""
    group = layout_of(header).groups(header)[0]
    return full_name(group, array.path)


def _pattern(names: Sequence[str]) -> str | None:
    """Return the pattern of names with two numbers, if the words before them identify them.

    Example:
        >>> _pattern(["run0_t8.nc", "run1_t8.nc"]), _pattern(["a0_b8.nc", "a1_b8.nc"])
        ('run{simulation}_t{step}.nc', None)
    """
    parts = {tuple(re.split(r"\d+", os.path.splitext(name)[0])) for name in names}
    suffixes = {os.path.splitext(name)[1] for name in names}
    if len(parts) != 1 or len(suffixes) != 1 or len(words := parts.pop()) != 3:
        return None
    kinds = [re.sub(r"[^A-Za-z]", "", re.split(r"[_.-]", w)[-1] or w).lower() for w in words[:2]]
    keys = ["step" if k in _STEP else "simulation" if k in _SIMULATION else "" for k in kinds]
    if sorted(keys) != ["simulation", "step"]:
        return None
    return f"{words[0]}{{{keys[0]}}}{words[1]}{{{keys[1]}}}{words[2]}{suffixes.pop()}"


def components(campaign: Campaign, names: Sequence[str]) -> list[str]:
    """Return the channels that are components of vectors and tensors, for a remark."""
    return [
        c for n in names for c in campaign.names[n] if COMPONENT in campaign.channels[c].array.roles
    ]

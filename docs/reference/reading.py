"""The page reading.md: what is read, and by which rules, from the tables that decide it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from pathlib import Path

from scitoolkit.core.remote import PROTOCOLS
from scitoolkit.io import roles, variable_roles
from scitoolkit.io.campaign.dim_roles import NEVER_LEARNED
from scitoolkit.io.campaign.more_layouts import LAYOUTS
from scitoolkit.io.campaign.no_grid import PROGRAMS, NoGrid
from scitoolkit.io.campaign.plain import Plain
from scitoolkit.io.formats.base import formats

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
PAGE = """# What does scitoolkit read, and how does it decide?

Written by `python docs/reference/make.py` from the tables that decide.

## Formats

{formats}

Recognised by content, not by suffix. A package that a format needs is named if it is missing:
{packages}. Not read: CDF-5 (`nccopy -k nc4 IN OUT`), HDF5 external links.

## URLs

{protocols}: a file, a Zarr store, a folder (with `/` at the end) or a pattern, wherever a path is
named. A Zarr store is read where it is: its listing becomes a local file of references, and only
the chunks of the rows that are needed are fetched. Any other file is copied once to
`~/.cache/scitoolkit/remote`, and again if its size, date or ETag changes. Endpoints and anonymous
access are settings of fsspec and of the protocol's package (`AWS_ENDPOINT_URL`,
`FSSPEC_S3_ANON=true`). Refused: servers that do not list the files of a store, since missing chunks
could not be told, and servers that ignore ranges of bytes where ranges are needed.

*When not.* Many small chunks, or files larger than the local disk: copy what many epochs read.

## Layouts

The first that the names and attributes of a file match; two that match are refused.

| layout | arrays |
|---|---|
{layouts}

## The role of a dim

In this order; the first that decides, counts.

1. The configuration: `data.sample_dim`, `data.grid`, `data.select`, `data.levels`, `data.dims`
   for files without names.
2. CF attributes of the coordinate: units `... since ...` are a time, {latitude_units} a
   latitude, {longitude_units} a longitude; then `standard_name` ({standard_names}); then
   `axis` T, Z or E.
3. Names, whatever their case:

| role | names |
|---|---|
{names}

Any other dim is a dim of the grid; of more than three, `init` selects the entry of those with one.
Beside a time by attributes, a dim that is merely called
`step` or `date` is not a second time. Two times by attributes, or by names alone, are refused;
`init emulate --sample-dim` says which counts. Times may be text (`Times` of WRF, ISO 8601).
Values on numbered cells are refused as grids unless `data.grid` names the dim: latitudes and
longitudes, or any `NAMEx` and `NAMEy`, along one dim; `CDI_grid_type: unstructured`; UGRID's
`mesh`; a table of whole numbers with 3 to 8 nodes for each cell; last the names {cells}.

Refused by the name of the program, with the way to a file that can be read: {programs}.

Dims of HDF5 and `.npy` without names are a guess that `init` writes down: (time, y, x) or
(time, x); (z, y, x) in files with one time each. It asks for `--dims` where both are possible, and
refuses arrays that differ in a number only, which look like times of one variable.

`init graph` takes a NetCDF file with a mesh by UGRID (`cf_role: mesh_topology`, triangles and
other polygons, `start_index` 0 or 1, either order of the connectivity). Nodes or faces are the
nodes of a graph, neighbours its edges in both directions, and the change of the fields to the next
time is learned from their values around each node, with the mesh once for each time in memory.
Training, validation and test are times in order. Names, units and time step are compared wherever
the model meets another file, which may hold another mesh; missing values and uneven times are
refused. Fields on edges and on levels are left out with a line.

## What is learned

`init` takes the fields with a time on one grid: that with the most dims, then the most fields,
then the most points. It writes a line for each other variable. Never learned are coordinates,
bounds and grid mappings, which are recognised by the attributes {references} of any object of
the file, by their own CF attributes, and last by name.

## Levels and members

`init emulate --level 500 --member 0` writes `data.select: {{level: 500, number: 0}}`: one
entry, by the value of the coordinate, or by number where there is none. `--level channels`
writes `data.levels: channels`: each level is a channel named by its value, `t_500`, instead of
a position on the grid. Files whose levels differ are refused.

*When not.* As channels, levels have no order for the network and no weights in common; as a
dim of the grid they do.

## Staggered grids

`data.staggered: centres` reads a field on the faces of cells as the mean of the two faces beside
each centre, so that `U` of WRF or `u` of ROMS can be learned with `T` or `temp`. Which dims are
faces is read from SGRID (`face_dimensions`), COMODO (`c_grid_axis_shift`), and last from the names
of WRF (`west_east_stag`), ROMS (`xi_u`), MITgcm (`XG`) and MOM6 (`xq`); where the faces lie, from
their number. Packed values are unpacked first, and a centre beside a face without a value has none.
A dim whose coordinate goes once around closes; of others, centres with a face on one side only are
left out of all fields. The log names each dim, and a dim whose centres are not known is refused.

*When not.* The mean of two faces smooths waves of a few cells, and its divergence is not the one
that the program computed: for budgets, learn the faces as they are stored.

## Missing values

A value is missing if it equals `_FillValue` or `missing_value`, which are one or several numbers or
texts, or if it lies outside `valid_min`, `valid_max` or `valid_range`. In a NetCDF variable that
states no `_FillValue`, the number with which the netCDF library fills cells that were never written
is missing as well. The limits of packed integers are packed too, unless they are floats.
A row with a missing value is refused, or masked where `data.mask` is set.

## The same cells in all files

Coordinates rise or fall, but for longitudes that pass 360. A dim that a file stores in another
order is read in the order of the first file that states its points. Parts of one simulation have
the same points. Latitudes and longitudes of two dims are compared at the corners: the directions
of all files, and the places of the parts of a simulation. Members along a dim of several files
are joined member by member if the times continue, and components and members have one order. What
differs is refused with both values. Files of one time each follow the times in them, else the
last number of their names; a missing number is a gap, as a missing time is. Restarts, files that
differ in a number and hold the last rows of the one before again, are one simulation without these
rows if the values of both are equal, and refused if not; so are rows that one file holds twice,
where its time goes back. Iterations of openPMD are compared in the
same way, with places and units in SI: windows that move, and factors that change, are refused.

## The same quantity in all files

`units`, `standard_name`, `positive` and the method along time (`cell_methods: time: mean`) are the
same wherever two files state them; units that differ in spelling are one. Fields without a time
that `open_fields` joins have the same values. Two simulations that hold one state at one time, as
restarts under other names do, are refused in two parts of a split; up to 500 simulations are
compared. Files of several tiles of a domain are no simulations.

## What was never written

Chunks, shards, sources of virtual datasets and records that a file does not hold are refused
with file and rows on every road (campaigns, `open_fields`), also in coordinates, instead of
read as fill values. A fill value that the file states as its missing value is missing; a chunk
that is absent although other rows have one is then logged. A Zarr store that leaves out chunks of
its fill value on purpose states `attrs['sparse'] = True`.
Entries of a coordinate that Zarr leaves out because they are 0 are read if 0 continues the
even spacing of the others, and in integer coordinates of one or two entries. A coordinate of
this size that lost a chunk cannot be told from it.

{holes}

## Layouts that are tried

`tests/helpers/program_layouts` writes {layouts_tried} layouts as their programs do, in small. For
each, `init` writes a job, with the option in brackets where the files do not say enough, and
the numbers that enter the network in its first step are compared with those that were written
(`benchmarks/run.py layouts_public`). A variable or role that differs in silence: {silent}.

- Trained ({trained}): {trained_names}.
- Refused by name, because they hold no grid ({refused}): {refused_names}.
"""


def reading_page() -> str:
    """Return reading.md."""
    tried = json.loads((RESULTS / "layouts_public.json").read_text(encoding="utf-8"))
    holes = json.loads((RESULTS / "holes.json").read_text(encoding="utf-8"))
    outcomes = {name: one["result"] for name, one in tried["results"].items()}
    trained = [
        f"{name} ({how.removeprefix('trained with ')})" if "with" in how else name
        for name, how in outcomes.items()
        if how.startswith("trained")
    ]
    refused = [name for name, how in outcomes.items() if how == "refused by name"]
    left_out = (*NEVER_LEARNED, "cell measure")
    naming = [name for name, role in variable_roles.REFERENCES.items() if role in left_out]
    names = {role: tuple(known) for known, role in roles.ROLE_NAMES}
    kinds = [formats.get(name) for name in formats]
    packages = [f"`{k.requires[0]}` (extra `{k.extra}`)" for k in kinds if k.requires]
    return PAGE.format(
        packages=", ".join(
            [*packages, "`cfgrib` (extra `grib`)", "`icechunk`, `s3fs` (extra `s3`)"]
        ),
        protocols=_codes(f"{name}://" for name in PROTOCOLS if name != "memory"),
        formats=_rows(f"`{name}`: {_summary(formats.get(name))}" for name in formats),
        layouts="\n".join(
            f"| {layout.name} | {_summary(layout)} |"
            for layout in (*LAYOUTS, Plain)
            if layout is not NoGrid
        ),
        latitude_units=_codes(u for u in sorted(roles.LATITUDE_UNITS) if u.endswith("_north")),
        longitude_units=_codes(u for u in sorted(roles.LONGITUDE_UNITS) if u.endswith("_east")),
        standard_names=_codes(roles.STANDARD_NAMES),
        names="\n".join(f"| {role} | {_codes(known)} |" for role, known in names.items()),
        references=_codes(naming),
        cells=_codes(roles.CELL_NAMES),
        programs=", ".join(program.name for program in PROGRAMS),
        holes=f"Of {holes['holes']} random holes, {holes['delivered']} were delivered and "
        f"{holes['not_named']} not named; of {holes['whole']} whole files, "
        f"{holes['whole_refused']} were refused (`benchmarks/run.py holes`).",
        layouts_tried=tried["layouts"],
        silent=tried["silent"],
        trained=len(trained),
        trained_names=", ".join(trained),
        refused=len(refused),
        refused_names=", ".join(refused),
    )


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _rows(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _summary(kind: type) -> str:
    """Return the first line of a class's docstring, without its name."""
    return (inspect.getdoc(kind) or "").splitlines()[0].replace("|", "\\|")

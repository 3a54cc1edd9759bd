"""Values that were never written, or were lost: how many of them a campaign delivers.

Each case is a small file with one random hole: chunks or shards that a store lacks, parts of a
virtual dataset that no source provides, rows beyond what was written, in fields and in coordinates.
HDF5, NetCDF and Zarr answer for such values with a fill value. A case is right if what reads the
file names it, and names a row of the hole (or the coordinate). The same files without a hole have
to deliver what was written, so that refusing everything is no way to be right.
"""

from __future__ import annotations

import itertools
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

import scitoolkit
from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign import open_campaign
from scitoolkit.io.campaign.measure import Question, measure_pieces, pieces_of
from scitoolkit.io.campaign.rows import row_sets

COUNT, WHOLE_EVERY = 1000, 10
DIMS = ("time", "y", "x")


@dataclass
class Case:
    """A file with a hole, or without one.

    Attributes:
        path: the file or store.
        values: what was written, (rows, y, x); all of it if there is no hole.
        rows: rows of the field, or entries of a coordinate, that were not written.
        vector: the coordinate with the hole, "" for the field.
    """

    path: Path
    values: np.ndarray
    rows: set[int]
    vector: str = ""


Writer = Callable[[np.random.Generator, Path, bool], Case]


def _values(rng: np.random.Generator, kinds: str = "f4 f8 i2 >f4") -> np.ndarray:
    shape = tuple(int(n) for n in rng.integers((6, 3, 3), (24, 9, 9)))
    dtype = np.dtype(str(rng.choice(kinds.split())))
    if dtype.kind == "i":
        return rng.integers(1, 100, shape).astype(dtype)
    return (rng.random(shape) + 3).astype(dtype)


def _chunks(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape of chunks of which the array has at least two."""
    chunks = tuple(int(rng.integers(1, n + 1)) for n in shape)
    return chunks if chunks != shape else (max(1, shape[0] // 2), *shape[1:])


def _boxes(shape: tuple[int, ...], chunks: tuple[int, ...]) -> list[tuple[slice, ...]]:
    starts = [range(0, n, c) for n, c in zip(shape, chunks, strict=True)]
    return [
        tuple(slice(a, min(a + c, n)) for a, c, n in zip(at, chunks, shape, strict=True))
        for at in itertools.product(*starts)
    ]


def _lost(rng: np.random.Generator, boxes: list[tuple[slice, ...]]) -> set[int]:
    """Draw which of several boxes are lost: at least one, never all."""
    count = int(rng.integers(1, min(4, len(boxes))))
    return set(map(int, rng.choice(len(boxes), count, replace=False)))


def _rows(boxes: list[tuple[slice, ...]], lost: set[int]) -> set[int]:
    return {row for n in lost for row in range(boxes[n][0].start, boxes[n][0].stop)}


def _coordinates(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {dim: 0.5 * np.arange(1.0, n + 1) for dim, n in zip(DIMS, shape, strict=True)}


def _scales(file: h5py.File, vectors: dict[str, np.ndarray]) -> None:
    """Write the coordinates that are not in the file, and attach all to the field."""
    for axis, (dim, values) in enumerate(vectors.items()):
        if dim not in file:
            file[dim] = values
        file[dim].make_scale(dim)
        file["u"].dims[axis].attach_scale(file[dim])


def hdf5_chunks(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Chunks of a field that were never written, of any type, filter and fill value."""
    u, path = _values(rng), folder / f"a{rng.integers(100)}.h5"
    boxes = _boxes(u.shape, chunks := _chunks(rng, u.shape))
    lost = _lost(rng, boxes) if hole else set()
    with h5py.File(path, "w") as file:
        made = file.create_dataset(
            "u",
            u.shape,
            u.dtype,
            chunks=chunks,
            compression=rng.choice([None, "gzip", "lzf"]),
            fillvalue=rng.choice([0, 7]),
        )
        for number, box in enumerate(boxes):
            if number not in lost:
                made[box] = u[box]
        _scales(file, _coordinates(u.shape))
    return Case(path, u, _rows(boxes, lost))


def hdf5_contiguous(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """A contiguous dataset that was created, and never written."""
    u, path = _values(rng), folder / "run.hdf5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("u", u.shape, u.dtype)
        if not hole:
            made[...] = u
        _scales(file, _coordinates(u.shape))
    return Case(path, u, set(range(len(u))) if hole else set())


def hdf5_unlimited(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Rows of an unlimited dim beyond what was written."""
    u, path = _values(rng), folder / "out.h5"
    rows = int(rng.integers(1, 3))
    end = rows * int(rng.integers(1, (len(u) - 1) // rows + 1)) if hole else len(u)
    with h5py.File(path, "w") as file:
        shape = (end, *u.shape[1:])
        made = file.create_dataset(
            "u", shape, u.dtype, maxshape=(None, *u.shape[1:]), chunks=(rows, *u.shape[1:])
        )
        made[...] = u[:end]
        made.resize(u.shape)
        _scales(file, _coordinates(u.shape))
    return Case(path, u, set(range(end, len(u))))


def hdf5_virtual(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Parts of a virtual dataset: not mapped, in a file that is gone, too short or not written."""
    u, path = _values(rng), folder / "all.h5"
    cuts = [0, *sorted(map(int, rng.choice(np.arange(1, len(u)), 2, replace=False))), len(u)]
    fault = int(rng.integers(4)) if hole else -1
    broken = int(rng.integers(3))
    layout = h5py.VirtualLayout(u.shape, u.dtype)
    parts = folder / "parts"
    parts.mkdir()
    for n, (a, b) in enumerate(itertools.pairwise(cuts)):
        source = parts / f"p{n}.h5"
        wrong = fault if n == broken else -1
        if wrong != 1:
            with h5py.File(source, "w") as file:
                shape = (b - a - 1 if wrong == 2 else b - a, *u.shape[1:])
                made = file.create_dataset("u", shape, u.dtype)
                if wrong != 3:
                    made[...] = u[a : a + shape[0]]
        if wrong != 0:
            layout[a:b] = h5py.VirtualSource(f"parts/p{n}.h5", "u", (b - a, *u.shape[1:]))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("u", layout, fillvalue=0)
        _scales(file, _coordinates(u.shape))
    return Case(path, u, set(range(cuts[broken], cuts[broken + 1])) if hole else set())


def netcdf4_records(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """NetCDF-4 whose times were extended, and whose field was not."""
    import h5netcdf

    u, path = _values(rng, "f4 f8 i2"), folder / "run.nc"
    end = int(rng.integers(1, len(u))) if hole else len(u)
    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"time": None, "y": u.shape[1], "x": u.shape[2]}
        file.resize_dimension("time", end)
        made = file.create_variable("u", DIMS, u.dtype, chunks=(1, *u.shape[1:]))
        made[:end] = u[:end]
        for dim, values in _coordinates(u.shape).items():
            vector = file.create_variable(dim, (dim,), "f8", chunks=(1,) if dim == "time" else None)
            if dim == "time":
                file.resize_dimension("time", len(u))
            vector[...] = values
    return Case(path, u, set(range(end, len(u))))


def netcdf3_fill(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Classic NetCDF: records that hold the default fill value, which the file does not state."""
    from scipy.io import netcdf_file

    u, path = _values(rng, ">f4 >f8"), folder / "run.nc"
    end = int(rng.integers(1, len(u))) if hole else len(u)
    with netcdf_file(path, "w") as file:
        for dim, size in zip(DIMS, u.shape, strict=True):
            file.createDimension(dim, None if dim == "time" else size)
        for dim, values in _coordinates(u.shape).items():
            file.createVariable(dim, "d", (dim,))[:] = values
        stored = u.copy()
        stored[end:] = 9.969209968386869e36
        file.createVariable("u", u.dtype.str[1:], DIMS)[:] = stored
    return Case(path, u, set(range(end, len(u))))


def _zarr(
    rng: np.random.Generator, folder: Path, version: int, **settings: object
) -> tuple[Path, np.ndarray, tuple[int, ...]]:
    """Write a whole store; return it, its values and the chunks."""
    import zarr

    u, path = _values(rng, "f4 f8 i4"), folder / "run.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=version)
    chunks = settings.pop("chunks", None) or _chunks(rng, u.shape)
    if shards := settings.pop("in_shards", None):
        chunks = tuple(int(c) for c in np.minimum((2, 2, 2), u.shape))
        settings["shards"] = tuple(c * int(k) for c, k in zip(chunks, shards, strict=True))
    for name, values in {"u": u, **_coordinates(u.shape)}.items():
        dims = DIMS if name == "u" else (name,)
        more = dict(settings, fill_value=settings.get("fill_value", 0)) if name == "u" else {}
        made = group.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=chunks if name == "u" else (max(1, len(values) // 3),),
            **({"dimension_names": dims} if version == 3 else {}),
            **({"fill_value": 0} | more),
        )
        if version == 2:
            made.attrs["_ARRAY_DIMENSIONS"] = list(dims)
        made[...] = values
    return path, u, chunks


def _stored(path: Path, name: str) -> list[Path]:
    files = (f for f in (path / name).rglob("*") if f.is_file())
    return sorted(f for f in files if not f.name.startswith((".z", "zarr")))


def _without(rng: np.random.Generator, path: Path, name: str, size: int) -> set[int]:
    """Remove chunks of an array; return the first and last rows that they cover."""
    files = _stored(path, name)
    rows: set[int] = set()
    for number in rng.choice(len(files), int(rng.integers(1, min(4, len(files)))), replace=False):
        parts = files[int(number)].relative_to(path / name).as_posix().removeprefix("c/")
        first = int(re.split(r"[./]", parts)[0]) * size
        files[int(number)].unlink()
        rows |= set(range(first, first + size))
    return rows


def zarr2_chunks(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Files of chunks that a Zarr v2 store lacks; with any separator and compressor."""
    separator = str(rng.choice([".", "/"]))
    path, u, chunks = _zarr(
        rng,
        folder,
        2,
        fill_value=int(rng.choice([0, 200])),
        chunk_key_encoding={"name": "v2", "separator": separator},
        compressors=None if rng.random() < 0.5 else "auto",
    )
    return Case(path, u, _without(rng, path, "u", chunks[0]) if hole else set())


def zarr3_chunks(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Files of chunks that a Zarr v3 store lacks, with and without consolidated metadata."""
    import zarr

    path, u, chunks = _zarr(
        rng,
        folder,
        3,
        fill_value=int(rng.choice([0, 200])),
        compressors=None if rng.random() < 0.5 else "auto",
    )
    if rng.random() < 0.5:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zarr: not in the specification of format 3
            zarr.consolidate_metadata(path)
    return Case(path, u, _without(rng, path, "u", chunks[0]) if hole else set())


def zarr3_shards(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Whole shards that a store lacks."""
    path, u, _ = _zarr(rng, folder, 3, in_shards=(int(rng.integers(1, 3)), 1, 2))
    import zarr

    size = zarr.open_group(path, mode="r")["u"].shards[0]
    return Case(path, u, _without(rng, path, "u", size) if hole else set())


def zarr3_inner(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Inner chunks that were never written into a shard."""
    import zarr

    u, path = _values(rng, "f4 f8"), folder / "run.zarr"
    chunks = (2, 2, 3)
    group = zarr.open_group(path, mode="w", zarr_format=3)
    made = group.create_array(
        "u",
        shape=u.shape,
        dtype=u.dtype,
        chunks=chunks,
        shards=(4, 4, 6),
        dimension_names=DIMS,
        fill_value=0,
    )
    boxes = _boxes(u.shape, chunks)
    lost = _lost(rng, boxes) if hole else set()
    for number, box in enumerate(boxes):
        if number not in lost:
            made[box] = u[box]
    return Case(path, u, _rows(boxes, lost))


def zarr_appended(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Rows of a store beyond what was written."""
    import zarr

    version = int(rng.choice([2, 3]))
    path, u, chunks = _zarr(rng, folder, version)
    if not hole:
        return Case(path, u, set())
    more = chunks[0] * int(rng.integers(1, 3)) + int(-len(u) % chunks[0])
    rows = len(u) + more
    group = zarr.open_group(path, mode="a")
    group["u"].resize((rows, *u.shape[1:]))
    group["time"].resize((rows,))
    group["time"][...] = 0.5 * np.arange(1.0, rows + 1)
    return Case(path, u, set(range(len(u), rows)))


def zarr_nan(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Files of chunks that a store lacks whose fill value marks missing values."""
    import zarr

    u, path = _values(rng, "f4 f8"), folder / "run.zarr"
    version = int(rng.choice([2, 3]))
    group = zarr.open_group(path, mode="w", zarr_format=version)
    chunks = _chunks(rng, u.shape)
    made = group.create_array(
        "u",
        shape=u.shape,
        dtype=u.dtype,
        chunks=chunks,
        fill_value=np.nan,
        **({"dimension_names": DIMS} if version == 3 else {}),
    )
    if version == 2:
        made.attrs["_ARRAY_DIMENSIONS"] = list(DIMS)
    made[...] = u
    return Case(path, u, _without(rng, path, "u", chunks[0]) if hole else set())


def zarr_vector(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Chunks of a coordinate that a store lacks."""
    version, dim = int(rng.choice([2, 3])), str(rng.choice(DIMS))
    path, u, _ = _zarr(rng, folder, version)
    size = max(1, u.shape[DIMS.index(dim)] // 3)
    return Case(path, u, _without(rng, path, dim, size) if hole else set(), dim)


def hdf5_vector(rng: np.random.Generator, folder: Path, hole: bool) -> Case:
    """Entries of a coordinate that were never written: chunks, all of it, or unmapped ones."""
    u, path, dim = _values(rng), folder / "run.h5", str(rng.choice(DIMS))
    vectors = _coordinates(u.shape)
    values, how = vectors[dim], int(rng.integers(3))
    first = int(rng.integers(len(values)))
    rows = set(range(len(values))) if how == 1 else {first}
    rows = rows if hole else set()
    with h5py.File(path, "w") as file:
        file["u"] = u
        if how == 0:
            made = file.create_dataset(dim, values.shape, "f8", chunks=(1,))
            for n in set(range(len(values))) - rows:
                made[n] = values[n]
        elif how == 1:
            made = file.create_dataset(dim, values.shape, "f8")
            if not hole:
                made[...] = values
        else:
            file["entries"] = values
            layout = h5py.VirtualLayout(values.shape, "f8")
            source = h5py.VirtualSource(".", "entries", values.shape)
            for n in set(range(len(values))) - rows:
                layout[n : n + 1] = source[n : n + 1]
            file.create_virtual_dataset(dim, layout)
        _scales(file, vectors)
    return Case(path, u, rows, dim)


WRITERS: tuple[Writer, ...] = (
    hdf5_chunks,
    hdf5_contiguous,
    hdf5_unlimited,
    hdf5_virtual,
    hdf5_vector,
    netcdf4_records,
    netcdf3_fill,
    zarr2_chunks,
    zarr3_chunks,
    zarr3_shards,
    zarr3_inner,
    zarr_appended,
    zarr_nan,
    zarr_vector,
)


def _batches(path: Path) -> np.ndarray:
    """Return the rows that a training receives, in order."""
    opened = scitoolkit.open_campaign(path, ["u"])
    batches = [b["x"][:, 0, 0] for b in opened.loader(2, horizon=0, shuffle=False)]
    return np.concatenate([np.asarray(b) for b in batches])


def _measured(path: Path) -> np.ndarray:
    """Measure the statistics of a training, which refuses missing values; return the rows."""
    campaign = open_campaign(path, ["u"])
    pieces = pieces_of(campaign, campaign.index.blocks)
    sets = row_sets(campaign)
    measure_pieces(campaign, sets, dict(enumerate(pieces)), Question(changes=("u",)))
    return _batches(path)


def _lazily(path: Path) -> np.ndarray:
    """Return the rows as a dataset of xarray delivers them."""
    return scitoolkit.open_campaign(path, ["u"]).dataset(0)["u"].values


def _opened(path: Path) -> np.ndarray:
    """Return the rows as forecasts and super-resolution read them."""
    with scitoolkit.open_fields(path) as data:
        return data["u"].transpose(*DIMS).values


ROADS = {"statistics": _measured, "batches": _batches, "dataset": _lazily, "fields": _opened}


def outcome(case: Case, read: Callable[[Path], np.ndarray]) -> str:
    """Return "" if a case is right, else what is wrong with it."""
    try:
        rows = read(case.path)
    except DataError as error:
        if not case.rows:
            return f"refused although whole: {error}"
        text = str(error).replace(str(case.path), case.path.name)
        if case.path.name not in text:
            return f"the file is not named: {error}"
        numbers = {int(n) for n in re.findall(r"\d+", text.replace(case.path.name, ""))}
        named = case.vector in text if case.vector in ("y", "x") else numbers & case.rows
        return "" if named else f"no row of {sorted(case.rows)} is named: {error}"
    if not case.rows:
        same = rows.shape == case.values.shape and np.array_equal(rows, case.values)
        return "" if same else "other values than were written"
    return "delivered" if not np.isnan(rows[sorted(case.rows)[0]]).any() else "NaN"


def count(number: int, seed: int = 0) -> dict:
    """Return the counts over `number` holes, and over files without a hole."""
    figures = {"holes": 0, "delivered": 0, "not_named": 0, "whole": 0, "whole_refused": 0}
    wrong: list[str] = []
    whole = number // WHOLE_EVERY
    for n in range(number + whole):
        hole, writer = n < number, WRITERS[n % len(WRITERS)]
        folder = Path(tempfile.mkdtemp())
        case = writer(np.random.default_rng([seed, n]), folder, hole)
        figures["holes" if hole else "whole"] += 1
        for name, read in ROADS.items():
            if (fault := outcome(case, read)) == "":
                continue
            if fault == "NaN" and name != "statistics":
                continue  # marked as missing, and refused before a training begins
            key = "delivered" if fault in ("delivered", "NaN") else "not_named"
            figures[key if hole else "whole_refused"] += 1
            wrong.append(f"{n} {writer.__name__}, {name}: {fault}"[:300])
        shutil.rmtree(folder)
    return {**figures, "wrong": wrong}


def run() -> dict:
    """Count what is delivered of 1,000 holes, by each road into the files."""
    return count(COUNT)

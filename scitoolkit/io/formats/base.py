"""File formats of gridded fields: base class, plug-in kind `format`, and detection of formats.

A format recognises its files by content and opens them lazily as `xarray.Dataset`. It may also
provide row readers for the planned loader, and a blockwise writer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from scitoolkit.core.errors import BackendError, ConfigError, DataError, missing_extra
from scitoolkit.core.plugins import Kind, NeedsPackages
from scitoolkit.io.calendar_steps import months_as_days
from scitoolkit.io.loader.descriptors import limit_reached, too_many_open
from scitoolkit.io.missing_attributes import FILLS, missing_numbers, number_of
from scitoolkit.io.table import is_table

if TYPE_CHECKING:
    import xarray as xr

    from scitoolkit.io.loader.rows import RowReader, VariableLayout

Block = tuple[slice | int, ...]
_DUMP_OF_BASILISK = (170901).to_bytes(4, "little")
"""Version in the header of a dump (output.h), after its time, length, step, depth and processes."""


@dataclass(frozen=True)
class StoredVariable:
    """Description of an array in a file.

    Attributes:
        name: of the array.
        shape: of the array.
        dims: names of the dims; dim_0, dim_1, ... if the file has none.
        dtype: of the stored values.
        units: as stated in the file.
        chunks: shape of a chunk; None for contiguous storage.
        filters: names of the filters, joined by "+".
        stored_bytes: size on disk after compression; 0 for values that were never written.
    """

    name: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    dtype: str
    units: str
    chunks: tuple[int, ...] | None
    filters: str
    stored_bytes: int

    @property
    def nbytes(self) -> int:
        """Uncompressed size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class StreamedVariable:
    """Variable that is written block by block.

    Attributes:
        dims: names of the dims.
        shape: of the variable.
        attrs: attributes, such as `units`.
        dtype: of the stored values; "str" for text (HDF5 only).
        chunks: shape of a chunk; None for contiguous storage if the format supports it.
        fill_value: value of missing values, declared in the file.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    chunks: tuple[int, ...] | None = None
    fill_value: float | None = None


class FieldWriter(Protocol):
    """Blockwise writer of a file under a temporary name."""

    def write(self, name: str, block: Block, values: np.ndarray) -> None:
        """Write values into a block of a variable."""

    def finish(self) -> None:
        """Close the file and rename it to its final name."""

    def discard(self) -> None:
        """Remove the temporary file; do nothing after `finish`."""


Refusal = Callable[[tuple[slice, ...], np.ndarray], None]
"""Raises DataError if a window, with the values read there, has values that were never written."""


class Format(NeedsPackages, ABC):
    """Base of a file format; members are classes without settings.

    Attributes:
        name: name in the registry.
        requires: importable packages.
        extra: the extra of scitoolkit that installs them.
        suffixes: suffixes of files to write; empty if the format cannot write.
        planned: `row_readers` exist and read along any dim.
        native_hdf5: files are opened by h5py.
        single_array: a file is one array without name, dims and attributes.
        unnamed_dims: files have no names of dims.
        whole_chunks: chunks can only be read as a whole, even without filters.
        highest_guess: upper limit of `guess`, which is not called if another format is surer.
    """

    name: ClassVar[str]
    extra: ClassVar[str] = "all"
    suffixes: ClassVar[tuple[str, ...]] = ()
    planned: ClassVar[bool] = False
    native_hdf5: ClassVar[bool] = False
    single_array: ClassVar[bool] = False
    unnamed_dims: ClassVar[bool] = False
    whole_chunks: ClassVar[bool] = False
    highest_guess: ClassVar[float] = 1.0

    @classmethod
    @abstractmethod
    def guess(cls, path: Path) -> float:
        """Return the confidence that a path is in this format, from 0 (no) to 1 (signature found).

        Implementations read only the first bytes or the names in a folder, and import no optional
        package.
        """

    @classmethod
    def advice(cls, path: Path) -> tuple[str, str] | None:
        """Return (problem, fix) for an unsupported variant of this format, else None."""
        return None

    @classmethod
    def refers(cls, path: Path) -> bool:
        """Return whether the values are in other files, whose changes this one does not show."""
        return False

    @classmethod
    @abstractmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Open the file lazily.

        Args:
            path: a path that `guess` accepts.
            chunks: see `xarray.open_dataset`.
            decode: whether to unpack values and decode times (CF conventions).
        """

    @classmethod
    def variables(cls, path: Path) -> list[StoredVariable]:
        """Return the numeric arrays of a file."""
        with cls.open_dataset(path) as dataset:
            return [
                _described(str(name), array)
                for name, array in dataset.variables.items()
                if array.dtype.kind in "biufc"
            ]

    @classmethod
    def row_readers(
        cls,
        path: Path,
        names: list[str],
        layout_of: Callable[..., VariableLayout],
        *,
        allow_unwritten: bool = False,
    ) -> dict[str, RowReader]:
        """Return a reader for each variable, for the planned loader.

        Args:
            path: the file.
            names: variables.
            layout_of: returns the `VariableLayout` for name, path, shape, dims, dtype, chunks,
                filters and attrs of a variable; it adds the sample axis and the crop.
            allow_unwritten: whether to read fill values in chunks that were never written.

        Raises:
            DataError: a variable is missing or damaged, or the format has no row readers.
        """
        raise DataError(
            f"the format {cls.name} cannot be read row by row",
            where=str(path),
            fix="convert it: open_fields(path), then write_fields(dataset, 'file.nc')",
        )

    @classmethod
    def unwritten(cls, path: Path, variables: Mapping[str, xr.Variable]) -> dict[str, Refusal]:
        """Return what refuses values that nobody wrote, of the variables with such values.

        Fill values that are decoded as missing values need no refusal.

        Args:
            path: the file.
            variables: of `open_dataset`, decoded.
        """
        return {}

    @classmethod
    def unwritten_entries(
        cls, path: Path, name: str, values: np.ndarray, attrs: Mapping[str, Any]
    ) -> np.ndarray | None:
        """Return the entries of a scalar or vector that nobody wrote, bool; None if all were.

        Args:
            path: the file.
            name: of the scalar or vector.
            values: as stored.
            attrs: its attributes.
        """
        return None

    @classmethod
    def has_row_readers(cls) -> bool:
        """Return whether the format implements `row_readers`."""
        return cls.row_readers.__func__ is not Format.row_readers.__func__  # type: ignore

    @classmethod
    def create(
        cls, path: Path, coordinates: xr.Dataset, variables: Mapping[str, StreamedVariable]
    ) -> FieldWriter:
        """Return a writer of a new file.

        Args:
            path: file that `finish` creates or replaces.
            coordinates: coordinates of the dims, and attributes of the file.
            variables: variables to write.
        """
        raise ConfigError(f"the format {cls.name} cannot be written", where=str(path))


formats: Kind[type[Format]] = Kind(
    "format", "reads and writes files of fields", contract="scitoolkit.testing:FormatContract"
)


def format_of(path: Path) -> type[Format]:
    """Return the format of a path by its content.

    Raises:
        DataError: no installed format recognises the path, or it cannot be opened.
        BackendError: its format requires a package that is not installed.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "u.dat"
        >>> import xarray as xr
        >>> xr.Dataset({"u": ("x", [1.0])}).to_netcdf(file, engine="h5netcdf")
        >>> format_of(file).name
        'hdf5'
    """
    if path.is_file():
        try:
            # Before the guesses, which open the file too: an error names the path and its cause.
            path.open("rb").close()
        except OSError as error:
            if too_many_open(error):
                raise limit_reached(path) from None
            raise DataError(f"cannot be opened ({error.strerror})", where=str(path)) from None
    best = recognised(path)
    if best is None:
        raise _not_recognised(path, _by_surety())
    if best.unavailable():
        raise missing_extra(best.requires[0], best.extra, f"reading {best.name} files")
    return best


def recognised(path: Path) -> type[Format] | None:
    """Return the format with the highest `guess`, even if its packages are missing; else None."""
    best, surest = None, 0.0
    for member in _by_surety():
        if member.highest_guess > surest and (guess := member.guess(path)) > surest:
            best, surest = member, guess
    return best


def _by_surety() -> list[type[Format]]:
    members = [formats.get(name) for name in formats]
    return sorted(members, key=lambda member: -member.highest_guess)


def writing_format(path: Path, default: str = "") -> type[Format]:
    """Return the format that writes files with a path's suffix.

    Raises:
        ConfigError: there is no such format and no default.
    """
    by_suffix = {s: formats.get(name) for name in formats for s in formats.get(name).suffixes}
    if path.suffix in by_suffix:
        return by_suffix[path.suffix]
    if default:
        return formats.get(default)
    raise ConfigError(
        f"cannot tell a format from {path.name!r}",
        allowed=", ".join(sorted(by_suffix)),
        fix=f"-o {path.with_suffix('.nc').name}",
    )


def file_head(path: Path, count: int) -> bytes:
    """Return the first bytes of a file, b"" if the path is not a file."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(count)


def plain_dims(rank: int) -> tuple[str, ...]:
    """Return dim_0, dim_1, ..., the names used for unnamed dims."""
    return tuple(f"dim_{axis}" for axis in range(rank))


def open_lazily(
    path: Any,
    engine: str,
    *,
    chunks: Any,
    decode: bool,
    fills: Callable[[list[str]], dict[str, float]] | None = None,
    **engine_options: Any,
) -> xr.Dataset:
    """Open a file with an xarray engine; `decode` applies to values and times, not to durations.

    Args:
        path: of the file.
        engine: of xarray.
        chunks: of dask, or None.
        decode: whether to decode values and times.
        fills: returns the fill values that variables have without stating them.
        **engine_options: of the engine.
    """
    import xarray as xr

    options = {"engine": engine, "chunks": chunks, **engine_options}
    # Most files are decoded by xarray alone. One that it cannot decode, or would decode to wrong
    # values, is opened again as stored and decoded after its attributes are mended.
    error: ValueError | None = None
    try:
        made = xr.open_dataset(path, decode_cf=decode, decode_timedelta=False, **options)
    except ValueError as caught:
        if not decode or "decode time" not in str(caught):
            raise
        error = caught
    else:
        implied = fills([str(n) for n in made.variables]) if decode and fills is not None else {}
        if not decode or not (implied or any(map(_has_odd_numbers, made.variables.values()))):
            return made
        made.close()
    raw = xr.open_dataset(path, decode_cf=False, **options)
    readable = _readable_times(raw, path) if error is not None else {}
    if error is not None and not readable:
        raw.close()
        raise error
    if error is None:
        raw = _with_numbers(raw, implied)
    decoded = xr.decode_cf(raw.assign(readable), decode_timedelta=False)
    decoded.set_close(raw.close)
    return decoded


_PACKING = (*FILLS, "scale_factor", "add_offset")


def _has_odd_numbers(variable: xr.Variable) -> bool:
    """Return whether numbers that define the values are text, or coarser than the values."""
    stated = {**variable.attrs, **variable.encoding}
    coarse = variable.dtype == np.float64 and "scale_factor" not in stated
    return any(isinstance(stated.get(key), str | bytes) for key in _PACKING) or (
        coarse and any(np.asarray(stated.get(key)).dtype == np.float32 for key in FILLS)
    )


def _with_numbers(raw: xr.Dataset, fills: Mapping[str, float]) -> xr.Dataset:
    """Return a dataset as stored with numbers xarray understands, and fill values it lacks."""
    for name, variable in raw.variables.items():
        attributes = variable.attrs
        if variable.dtype.kind in "biuf" and _has_odd_numbers(variable):
            numbers = missing_numbers(attributes, variable.dtype)
            stated: dict[str, Any] = {}
            if numbers:
                stated["missing_value"] = np.array(numbers, variable.dtype)
            for key, default in (("scale_factor", 1.0), ("add_offset", 0.0)):
                if key in attributes:
                    stated[key] = number_of(attributes, key, default)
            variable.attrs = {k: v for k, v in attributes.items() if k not in _PACKING} | stated
        if name in fills:
            variable.attrs["_FillValue"] = variable.dtype.type(fills[str(name)])
    return raw


def _readable_times(raw: xr.Dataset, path: Path) -> dict[Hashable, xr.Variable]:
    """Return the times that xarray decodes once calendar and unit are written as CF has them."""
    changed: dict[Hashable, xr.Variable] = {}
    for name, stored in raw.variables.items():
        if "since" not in str(stored.attrs.get("units", "")):
            continue
        where = f"{path}: {name}"
        values, attributes = months_as_days(stored.values, stored.attrs, where)
        if attributes == stored.attrs:
            continue
        changed[name] = stored.copy(data=values)
        changed[name].attrs = attributes
        bounds = stored.attrs.get("bounds", stored.attrs.get("climatology"))
        if bounds in raw.variables:  # CF: they have the unit and the calendar of their variable
            edges = raw.variables[bounds]
            inherited = {k: stored.attrs[k] for k in ("units", "calendar") if k in stored.attrs}
            values, _ = months_as_days(edges.values, {**edges.attrs, **inherited}, where)
            changed[bounds] = edges.copy(data=values)
            changed[bounds].attrs = {
                k: v for k, v in edges.attrs.items() if k not in ("units", "calendar")
            }
    return changed


def unreadable(path: Path, error: BaseException) -> DataError:
    """Return the DataError for a file that could not be opened, with its size and the cause."""
    text = " ".join(str(error).split())
    if isinstance(error, BackendError):
        return DataError(text, where=str(path))
    if too_many_open(error):
        return limit_reached(path)
    if "decode time" in text or "calendar" in text:
        return DataError(f"its times cannot be decoded ({text})", where=str(path))
    size = f"{path.stat().st_size} bytes" if path.is_file() else "a folder"
    return DataError(
        f"damaged or truncated ({size}; {type(error).__name__}: {text[:200]})",
        where=str(path),
        fix="copy or make the file again",
    )


def _not_recognised(path: Path, known: list[type[Format]]) -> DataError:
    names = ", ".join(m.name for m in known if m.name != "xarray")
    names += ", formats of installed engines of xarray"
    if is_table(path):
        return DataError(
            "a table of series, not fields on a grid",
            where=str(path),
            allowed=names,
            fix=f"scitoolkit init forecast {path.name}: forecasts read .csv and .tsv",
        )
    for member in known:
        if advice := member.advice(path):
            return DataError(advice[0], where=str(path), allowed=names, fix=advice[1])
    if path.is_dir():
        return DataError("a folder that is not a Zarr store", where=str(path), allowed=names)
    if file_head(path, 32)[28:] == _DUMP_OF_BASILISK:
        return DataError(
            "a dump of Basilisk: cells of a tree, not supported as a grid",
            where=str(path),
            allowed=names,
            fix=f'in Basilisk: #include "vtk.h", restore ("{path.name}"), then '
            f'output_vtk ({{f, p}}, N, fopen ("{path.name}.vtk", "w"), true)',
        )
    size = path.stat().st_size
    return DataError(
        f"format not recognised ({size} bytes)",
        where=str(path),
        allowed=names,
        fix="" if size else "the file is empty",
    )


def _described(name: str, array: xr.Variable) -> StoredVariable:
    chunks = array.encoding.get("chunks")
    return StoredVariable(
        name=name,
        shape=array.shape,
        dims=tuple(map(str, array.dims)),
        dtype=array.dtype.str,
        units=str(array.attrs.get("units", "")),
        chunks=tuple(chunks) if chunks else None,
        filters="",
        stored_bytes=array.nbytes,
    )

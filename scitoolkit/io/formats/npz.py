"""Format of numpy's .npz files: several arrays."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.formats.base import Format, StoredVariable, file_head, plain_dims
from scitoolkit.io.loader.files import DataFile
from scitoolkit.io.loader.rows import StridedReader, missing_variable
from scitoolkit.io.numpy_file import DAMAGED

if TYPE_CHECKING:
    import xarray as xr

    from scitoolkit.io.loader.rows import RowReader, VariableLayout

_LOCAL_HEADER = 30


class Npz(Format):
    """Arrays by name with dims dim_0, dim_1, ...; rows are read only if not compressed."""

    name: ClassVar[str] = "npz"
    unnamed_dims: ClassVar[bool] = True

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 1 for a zip archive named .npz, 0.5 for another zip archive of .npy files."""
        if file_head(path, 4) != b"PK\x03\x04":
            return 0.0
        if path.suffix == ".npz":
            return 1.0
        try:
            with zipfile.ZipFile(path) as archive:
                return 0.5 * all(n.endswith(".npy") for n in archive.namelist())
        except zipfile.BadZipFile:
            return 0.0

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Read the numeric arrays into memory."""
        import xarray as xr

        with _reading(path), np.load(path, allow_pickle=False) as archive:
            read = ((name, _numbers(archive, name)) for name in archive.files)
            arrays = {name: array for name, array in read if array is not None}
        shapes = {a.shape for a in arrays.values() if a.ndim}
        # Arrays of equal shape share their dims.
        same = len(shapes) <= 1
        dataset = xr.Dataset(
            {n: (plain_dims(a.ndim) if same else _dims(n, a), a) for n, a in arrays.items()}
        )
        return dataset if chunks is None else dataset.chunk(chunks)

    @classmethod
    def variables(cls, path: Path) -> list[StoredVariable]:
        """Return the numeric arrays from their headers, without reading values."""
        variables = []
        with _reading(path), zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                shape, _, dtype, _ = _header(archive, member)
                name = member.filename.removesuffix(".npy")
                filters = "" if member.compress_type == zipfile.ZIP_STORED else "deflate"
                if dtype.kind in "biufc":
                    variables.append(
                        StoredVariable(
                            name,
                            shape,
                            plain_dims(len(shape)),
                            dtype.str,
                            "",
                            None,
                            filters,
                            member.compress_size,
                        )
                    )
        return variables

    @classmethod
    def row_readers(
        cls,
        path: Path,
        names: list[str],
        layout_of: Callable[..., VariableLayout],
        *,
        allow_unwritten: bool = False,
    ) -> dict[str, RowReader]:
        """Return readers of rows along the first dim.

        Raises:
            DataError: an array is compressed, or in Fortran order.
        """
        file, readers = DataFile(path), {}
        with _reading(path), zipfile.ZipFile(path) as archive:
            members = {i.filename.removesuffix(".npy"): i for i in archive.infolist()}
            for name in names:
                if name not in members:
                    raise missing_variable(name, list(members), path)
                shape, fortran, dtype, inside = _header(archive, members[name])
                if members[name].compress_type != zipfile.ZIP_STORED or fortran:
                    raise DataError(
                        "in Fortran order" if fortran else "compressed as a whole",
                        where=f"{path}: variable {name}",
                        fix="np.savez(path, ...) of arrays in C order, or one file each",
                    )
                # The local header may have a longer extra field than the central directory: bytes
                # 26 and 28 hold the lengths of name and extra field (ZIP APPNOTE, section 4.3.7).
                start = file.read(members[name].header_offset, _LOCAL_HEADER)
                before = int(start[26:28].view("<u2")[0]) + int(start[28:30].view("<u2")[0])
                offset = members[name].header_offset + _LOCAL_HEADER + before + inside
                layout = layout_of(
                    name=name,
                    path=str(path),
                    shape=shape,
                    dims=plain_dims(len(shape)),
                    dtype=dtype,
                    chunks=None,
                    filters=(),
                    attrs={},
                )
                stride = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
                along_first = StridedReader(_along_first(layout), file, offset, stride)
                readers[name] = along_first.with_layout(layout)
        return readers


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Convert exceptions raised by a damaged archive into DataError."""
    try:
        yield
    except DAMAGED as error:
        raise DataError(
            f"damaged or truncated ({error})", where=str(path), fix="copy or make the file again"
        ) from None


def _dims(name: str, array: np.ndarray) -> tuple[str, ...]:
    return tuple(f"{name}_dim_{axis}" for axis in range(array.ndim))


def _numbers(archive: Any, name: str) -> np.ndarray | None:
    """Return an array, or None if it is not numeric."""
    try:
        array = archive[name]
    except ValueError:
        return None  # objects are not read
    return array if array.dtype.kind in "biufc" else None


def _along_first(layout: VariableLayout) -> VariableLayout:
    return replace(layout, axis=0, crop=tuple(slice(0, n) for n in layout.shape))


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[Any, bool, np.dtype, int]:
    """Return shape, Fortran order, dtype, and the length of the .npy header of a member."""
    with archive.open(member) as stream:
        try:
            version = np.lib.format.read_magic(stream)
        except ValueError as error:
            raise zipfile.BadZipFile(f"{member.filename}: {error}") from None
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(stream)
        return shape, fortran, dtype, stream.tell()

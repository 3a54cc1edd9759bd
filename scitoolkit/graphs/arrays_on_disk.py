"""Sequential block-wise access to arrays in .npy, .npz and HDF5 files."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.numpy_file import DAMAGED

Array = np.ndarray


class ArrayStream:
    """Sequential reader of the flattened array in a .npy file.

    Args:
        file: file object at the start of a .npy file; closed by `close`.
        where: file name for messages.

    Raises:
        DataError: not a .npy file, or an array of objects or in Fortran order.
    """

    def __init__(self, file: IO[bytes], where: str) -> None:
        self._file, self.where = file, where
        try:
            version = np.lib.format.read_magic(file)
            read = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            # The header alone: `np.load` would read an array of an archive as a whole.
            self.shape, fortran, self.dtype = read(file)
        except DAMAGED as error:
            raise DataError(f"not an array of numpy ({error})", where=where) from None
        if self.dtype.hasobject or (fortran and len(self.shape) > 1):
            raise DataError(
                f"{self.dtype} in Fortran order" if fortran else "an array of objects",
                where=where,
                allowed="numbers in C order",
                fix="numpy.ascontiguousarray",
            )
        self._begin = file.tell()

    def seek(self, number: int) -> ArrayStream:
        """Move to an index of the flattened array."""
        self._file.seek(self._begin + number * self.dtype.itemsize)
        return self

    def take(self, count: int) -> Array:
        """Return the next numbers.

        Raises:
            DataError: the file is truncated.
        """
        raw = self._file.read(count * self.dtype.itemsize)
        if len(raw) != count * self.dtype.itemsize:
            raise DataError("the file is truncated", where=self.where, fix="write it again")
        return np.frombuffer(raw, self.dtype)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class ArrayFile:
    """Named arrays of a .npz archive, an HDF5 file, or a folder of .npy files.

    Args:
        path: the file or folder.

    Raises:
        DataError: no such file, or not one of these.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = Path(path)
        self._close = contextlib.ExitStack()
        self._archive: zipfile.ZipFile | None = None
        self._hdf5: Any = None
        if not self.path.exists():
            raise DataError("no such file", where=str(path))
        try:
            if self.path.is_dir():
                self.names: list[str] = sorted(p.stem for p in self.path.glob("*.npy"))
            elif self.path.suffix.lower() == ".npz":
                self._archive = self._close.enter_context(zipfile.ZipFile(self.path))
                self.names = [name.removesuffix(".npy") for name in self._archive.namelist()]
            else:
                import h5py

                self._hdf5 = self._close.enter_context(h5py.File(self.path))
                self.names = list(self._hdf5)
        except (OSError, zipfile.BadZipFile) as error:
            raise DataError(f"not readable ({error})", where=str(path)) from None

    def __contains__(self, name: str) -> bool:
        """Return whether there is an array of that name."""
        return name in self.names

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array."""
        if self._hdf5 is not None:
            return tuple(self._hdf5[name].shape)
        stream = self.stream(name)
        stream.close()
        return tuple(stream.shape)

    def dtype(self, name: str) -> np.dtype:
        """Return the dtype of an array."""
        if self._hdf5 is not None:
            return self._hdf5[name].dtype
        stream = self.stream(name)
        stream.close()
        return stream.dtype

    def stream(self, name: str) -> ArrayStream:
        """Open an array of an .npz archive or a folder."""
        where = f"{self.path}:{name}"
        if self._archive is not None:
            return ArrayStream(self._archive.open(f"{name}.npy"), where)
        return ArrayStream((self.path / f"{name}.npy").open("rb"), where)

    def read(self, name: str) -> Array:
        """Return a whole array."""
        if self._hdf5 is not None:
            return self._hdf5[name][...]
        stream = self.stream(name)
        array = stream.take(int(np.prod(stream.shape))).reshape(stream.shape)
        stream.close()
        return array

    def blocks(self, name: str, rows: int, begin: int = 0, end: int | None = None) -> Iterator:
        """Yield rows begin..end of an array, at most `rows` at a time."""
        shape = self.shape(name)
        end = shape[0] if end is None else end
        if self._hdf5 is not None:
            for first in range(begin, end, rows):
                yield self._hdf5[name][first : min(first + rows, end)]
            return
        width = int(np.prod(shape[1:]))
        stream = self.stream(name).seek(begin * width)
        try:
            for first in range(begin, end, rows):
                count = min(rows, end - first)
                yield stream.take(count * width).reshape(count, *shape[1:])
        finally:
            stream.close()

    def rows(self, name: str, begin: int, end: int) -> Array:
        """Return rows begin..end of an array."""
        if begin < end:
            return next(iter(list(self.blocks(name, end - begin, begin, end))))
        return np.zeros((0, *self.shape(name)[1:]), self.dtype(name))

    def close(self) -> None:
        """Close the file."""
        self._close.close()


class ArrayWriter:
    """Block-wise writer of a .npy file that computes its SHA-256.

    Args:
        path: the file to write.
        dtype, shape: dtype and shape of the whole array.
        stays_open: False closes the file between blocks, so that many writers need few descriptors.
    """

    def __init__(
        self, path: Path, dtype: Any, shape: tuple[int, ...], *, stays_open: bool = True
    ) -> None:
        import hashlib

        self._stays_open = stays_open
        self._path, self._file = path, path.open("wb")
        self._hash, self.size = hashlib.sha256(), 0
        self._dtype, self._left = np.dtype(dtype), int(np.prod(shape))
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(_Tee(self._put), header)
        if not stays_open:
            self._file.close()

    def _put(self, raw: Any) -> None:
        self._file.write(raw)
        self._hash.update(raw)
        self.size += len(raw)

    def write(self, block: Array) -> None:
        """Append a block."""
        self._left -= block.size
        if not self._stays_open:
            self._file = self._path.open("ab")
        self._put(np.ascontiguousarray(block, dtype=self._dtype).tobytes())
        if not self._stays_open:
            self._file.close()

    def __enter__(self) -> ArrayWriter:
        """Return the writer; the file is closed on exit."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self._file.close()

    def finish(self) -> dict[str, Any]:
        """Close the completed file; return its size in bytes and SHA-256."""
        assert self._left == 0, "incomplete array"
        self._file.close()
        return {"bytes": self.size, "sha256": self._hash.hexdigest()}


class _Tee:
    """File-like object for numpy's header writer."""

    def __init__(self, put: Any) -> None:
        self.write = put


def write_array(path: Path, array: Array) -> dict[str, Any]:
    """Write a .npy file; return its size in bytes and SHA-256."""
    with ArrayWriter(path, array.dtype, array.shape) as writer:
        writer.write(array)
        return writer.finish()

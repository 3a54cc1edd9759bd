"""Error-bounded codecs from libraries, each behind our own checks.

The libraries end the process, lose NaN or break their bound on input outside their limits, so a
codec first says whether it can take an array (`refusal`), and all of them only ever see finite
C-contiguous float32 or float64. What they decode is verified against the bound by the caller.
"""

from __future__ import annotations

import io
import math
from abc import ABC, abstractmethod
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from scitoolkit.core.errors import DataError, missing_extra

Shape = tuple[int, ...]
MIN_SPERR_EXTENT = 9


class Base(ABC):
    """A codec with an absolute pointwise bound."""

    name: str
    package: str
    max_dims: int

    @abstractmethod
    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Compress finite C-contiguous float32/64 values."""

    @abstractmethod
    def decode(self, data: bytes, shape: Shape, dtype: np.dtype, error_bound: float) -> np.ndarray:
        """Return the values; `data` has passed a checksum."""

    def refusal(self, values: np.ndarray) -> str:
        """Return why this codec cannot take these values, or an empty text."""
        return ""

    def version(self) -> str:
        """Return the version of the library, kept in the header."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            raise missing_extra(self.package, "compression", f"the codec {self.name}") from None


def fold(shape: Shape, max_dims: int) -> Shape:
    """Return the shape without unit dims, its leading dims multiplied into at most `max_dims`.

    Example:
        >>> fold((2, 3, 1, 4, 5), 3), fold((1, 1), 3)
        ((6, 4, 5), (1,))
    """
    kept = [n for n in shape if n != 1] or [1]
    split = max(len(kept) - max_dims, 0)
    return (math.prod(kept[: split + 1]), *kept[split + 1 :])


class Sz3(Base):
    """SZ3 (Liang et al. 2023, doi:10.1109/TBDATA.2022.3201176) by pysz."""

    name, package, max_dims = "sz3", "pysz", 4

    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Compress with SZ3's interpolation-Lorenzo algorithm in absolute mode."""
        sz, config, mode = self._library()
        config.errorBoundMode, config.absErrorBound = mode, error_bound
        packed, _ = sz.compress(values.reshape(fold(values.shape, self.max_dims)), config)
        return packed.tobytes()

    def decode(self, data: bytes, shape: Shape, dtype: np.dtype, error_bound: float) -> np.ndarray:
        """Return the values."""
        sz, _, _ = self._library()
        packed = np.frombuffer(data, dtype=np.uint8)
        return sz.decompress(packed, dtype.type, fold(shape, self.max_dims))[0].reshape(shape)

    def _library(self):
        try:
            from pysz import sz, szConfig, szErrorBoundMode
        except ImportError:
            raise missing_extra(self.package, "compression", "the codec sz3") from None
        return sz, szConfig(), szErrorBoundMode.ABS


class Zfp(Base):
    """ZFP (Lindstrom 2014, doi:10.1109/TVCG.2014.2346458) in fixed-accuracy mode."""

    name, package, max_dims = "zfp", "zfpy", 4

    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Compress with an absolute tolerance."""
        folded = values.reshape(fold(values.shape, self.max_dims))
        return self._library().compress_numpy(folded, tolerance=error_bound, write_header=False)

    def decode(self, data: bytes, shape: Shape, dtype: np.dtype, error_bound: float) -> np.ndarray:
        """Return the values."""
        zfpy = self._library()
        kind = zfpy.type_float if dtype == np.float32 else zfpy.type_double
        folded = fold(shape, self.max_dims)
        return zfpy._decompress(data, kind, folded, tolerance=error_bound).reshape(shape)

    def _library(self):
        try:
            import zfpy
        except ImportError:
            raise missing_extra(self.package, "compression", "the codec zfp") from None
        return zfpy


class Sperr(Base):
    """SPERR (Li et al. 2023, doi:10.1109/IPDPS54959.2023.00104), the HDF5 filter of hdf5plugin."""

    name, package, max_dims = "sperr", "hdf5plugin", 3

    def refusal(self, values: np.ndarray) -> str:
        """SPERR ends the process on 1-D arrays and on extents below its transform."""
        shape = fold(values.shape, self.max_dims)
        if len(shape) < 2 or min(shape) < MIN_SPERR_EXTENT:
            return f"sperr needs 2 or 3 dims of at least {MIN_SPERR_EXTENT}, got {shape}"
        return ""

    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Compress with an absolute tolerance, as one chunk."""
        shape = fold(values.shape, self.max_dims)
        dataset = self._dataset(shape, values.dtype, error_bound)
        dataset[...] = values.reshape(shape)
        dataset.file.flush()
        skipped, data = dataset.id.read_direct_chunk((0,) * len(shape))
        if skipped:
            raise DataError("the filter sperr was skipped by HDF5")
        return bytes(data)

    def decode(self, data: bytes, shape: Shape, dtype: np.dtype, error_bound: float) -> np.ndarray:
        """Return the values."""
        folded = fold(shape, self.max_dims)
        dataset = self._dataset(folded, dtype, error_bound)
        dataset.id.write_direct_chunk((0,) * len(folded), bytes(data))
        return dataset[...].reshape(shape)

    def _dataset(self, shape: Shape, dtype: np.dtype, error_bound: float):
        try:
            import h5py
            import hdf5plugin
        except ImportError:
            raise missing_extra(self.package, "compression", "the codec sperr") from None
        file = h5py.File(io.BytesIO(), "w")
        return file.create_dataset(
            "v", shape, dtype, chunks=shape, **hdf5plugin.Sperr(absolute=error_bound)
        )


LIBRARY_BASES: dict[str, Base] = {base.name: base for base in (Sz3(), Sperr(), Zfp())}

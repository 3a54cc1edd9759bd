"""SPERR codec, through the HDF5 filter of hdf5plugin."""

from __future__ import annotations

import io
from typing import Any, ClassVar, Literal

import numpy as np

from scitoolkit.compression.codecs.base import ErrorBoundedCodec, Shape, fold
from scitoolkit.core.errors import DataError, missing_extra


class Sperr(ErrorBoundedCodec):
    """SPERR: wavelet with set partitioning and outlier coding (Li et al. 2023).

    The limits on dims and extents are required: SPERR aborts the process on 1-D arrays and on
    extents shorter than its transform.

    Source:
        doi:10.1109/IPDPS54959.2023.00104
    """

    name: Literal["sperr"] = "sperr"
    requires: ClassVar[tuple[str, ...]] = ("hdf5plugin",)
    dims: ClassVar[tuple[int, int]] = (2, 3)
    min_extent: ClassVar[int] = 9
    automatic: ClassVar[bool] = True

    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Compress with an absolute tolerance, as one chunk."""
        shape = fold(values.shape, self.dims[1])
        dataset = _dataset(shape, values.dtype, error_bound)
        dataset[...] = values.reshape(shape)
        dataset.file.flush()
        skipped, data = dataset.id.read_direct_chunk((0,) * len(shape))
        if skipped:
            raise DataError("the filter sperr was skipped by HDF5")
        return bytes(data)

    def decode(self, data: bytes, shape: Shape, dtype: np.dtype, error_bound: float) -> np.ndarray:
        """Return the values."""
        folded = fold(shape, self.dims[1])
        dataset = _dataset(folded, dtype, error_bound)
        dataset.id.write_direct_chunk((0,) * len(folded), bytes(data))
        return dataset[...].reshape(shape)


def _dataset(shape: Shape, dtype: np.dtype, error_bound: float) -> Any:
    try:
        import h5py
        import hdf5plugin
    except ImportError:
        raise missing_extra("hdf5plugin", "compression", "the codec sperr") from None
    file = h5py.File(io.BytesIO(), "w")
    return file.create_dataset(
        "v", shape, dtype, chunks=shape, **hdf5plugin.Sperr(absolute=error_bound)
    )

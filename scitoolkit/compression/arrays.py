"""Conversion of array-likes to numpy, and the working dtype of codecs."""

from __future__ import annotations

from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError


def as_numpy(array: Any) -> np.ndarray:
    """Return a numpy view of a numpy, torch, xarray or dask array; dask arrays are computed.

    Masked arrays stay masked arrays.

    Raises:
        ConfigError: the dtype is not supported (complex, text, objects, dates, long double).

    Example:
        >>> as_numpy([1.0, 2.0]).dtype
        dtype('float64')
    """
    if type(array).__module__.partition(".")[0] == "torch":
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":
            raise _refused("bfloat16", "tensor.float()")
        array = array.numpy()
    if type(array).__module__.partition(".")[0] == "dask":
        array = array.compute()
    values = array if isinstance(array, np.ma.MaskedArray) else np.asarray(array)
    if values.dtype.kind == "c":
        raise _refused(str(values.dtype), "compress array.real and array.imag")
    if values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        raise _refused(str(values.dtype), "array.astype('float64')")
    return values


def split_mask(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a masked array's filled values and its mask; the mask is None for other arrays.

    Example:
        >>> split_mask(np.ma.array([1.0, 2.0], mask=[False, True], fill_value=-9.0))
        (array([ 1., -9.]), array([False,  True]))
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values, None
    # numpy's fill value of 1e20 is Inf in float16.
    with np.errstate(over="ignore"):
        return values.filled(), np.ma.getmaskarray(values)


def masked_array(values: np.ndarray, mask: Any, fill_value: Any) -> np.ma.MaskedArray:
    """Return values with a mask and the fill value of the array that was compressed."""
    with np.errstate(over="ignore"):  # as in `split_mask`
        return np.ma.MaskedArray(values, mask, fill_value=fill_value)


def working_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype that codecs work in: float64 for 8-byte dtypes, float32 for shorter ones.

    Example:
        >>> working_dtype(np.dtype("f2"))
        dtype('float32')
    """
    return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)


def _refused(what: str, fix: str) -> ConfigError:
    return ConfigError(
        f"cannot compress {what}",
        allowed="float16, float32, float64; integers and booleans losslessly",
        fix=fix,
    )

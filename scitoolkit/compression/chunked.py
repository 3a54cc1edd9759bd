"""Checks and chunk shapes for variables that the HDF5 filter or the Zarr codec codes by chunk.

Chunks support absolute bounds and one missing value besides NaN, Inf and netCDF's default fill.
For other variables `refusal` and `Survey.refusal` return why a stream is written instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.choose import Options
from scitoolkit.compression.missing import NETCDF_FILL, MissingValues
from scitoolkit.compression.value_range import ValueRange

CHUNK_POINTS = 1 << 18
SLAB_BYTES = 1 << 26
_ALLOWED = {
    "codec": ("auto", "interpolation"),
    "enhancer": ("auto", "none"),
    "guarantee": ("strict",),
    "objective": ("size",),
}


@dataclass(frozen=True)
class Survey:
    """Range and missing values of a variable, found in one pass.

    Args:
        bound: requested bound.
        missing: missing values that occur.
        extent: smallest and largest valid value.
        absolute: the bound in the unit of the values; 0 if every bit is stored.
    """

    bound: Bound
    missing: MissingValues
    extent: tuple[float, float]
    absolute: float

    @property
    def fill(self) -> float | None:
        """The missing value that occurs besides netCDF's default fill; None if there is none."""
        return next((v for v in self.missing.values if v != NETCDF_FILL), None)

    @property
    def refusal(self) -> str:
        """Why chunks cannot represent the missing values, "" if they can."""
        several = sum(v != NETCDF_FILL for v in self.missing.values) > 1
        return "several missing values" if several else ""

    def header(self) -> dict[str, Any]:
        """Return the entries of a stream's header."""
        return {
            "bound": {"mode": self.bound.mode, "value": self.bound.value},
            "error_bound": self.absolute,
            "range": list(self.extent),
            **self.missing.header(),
        }


def unsuited(options: Options) -> tuple[str, str]:
    """Return the first option that chunks do not support and its allowed values, else ("", "").

    Example:
        >>> unsuited(Options(objective="quality"))
        ('objective=quality', 'size')
    """
    codec = options.codec if isinstance(options.codec, str) else options.codec.name
    enhancer = options.enhancer if isinstance(options.enhancer, str) else options.enhancer.name
    asked = {
        "codec": codec,
        "enhancer": enhancer,
        "guarantee": options.guarantee,
        "objective": options.objective,
    }
    if options.progressive:
        return "codec=interpolation with progressive", "progressive: false"
    for key, value in asked.items():
        if value not in _ALLOWED[key]:
            return f"{key}={value}", " or ".join(_ALLOWED[key])
    return "", ""


def refusal(item: Any, bound: Bound, missing: MissingValues) -> str:
    """Return why a variable cannot be coded in chunks, "" if it can as far as metadata tell.

    Args:
        item: float variable with `shape` and `dtype`.
        bound: requested bound.
        missing: values that count as missing, including those declared in the file.
    """
    if bound.mode not in ("abs", "rel"):
        return f"a bound {bound.mode}={bound.value:g}"
    if item.dtype.itemsize not in (4, 8) or not item.shape or not math.prod(item.shape):
        return f"{item.dtype} of shape {tuple(item.shape)}"
    return "a valid range" if missing.limited else ""


def survey(item: Any, bound: Bound, missing: MissingValues, where: str) -> Survey:
    """Return the range of a variable and the missing values that occur in it, in one pass.

    Args:
        item: variable that `refusal` accepts.
        bound: requested bound.
        missing: values that count as missing.
        where: name of the variable, for messages.

    Raises:
        NumericalError: the range of a relative bound is set by a few outliers.
    """
    seen, occurring = ValueRange(), dict.fromkeys(missing.values, False)
    for part in slabs(item):
        values = np.asarray(part)
        seen.add(values[~missing.where(values)])
        for value in (v for v, found in occurring.items() if not found):
            occurring[value] = MissingValues((value,)).occurs_in(values)
    if bound.of_range:
        seen.refuse_outliers(where)
    extent = seen.extent or (0.0, 0.0)
    kept = MissingValues(tuple(value for value, found in occurring.items() if found))
    return Survey(bound, kept, extent, bound.absolute(*extent))


def chunk_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of a chunk of about 2¹⁸ points, as close to a cube as the array allows.

    An array of up to 2¹⁹ points is one chunk. Larger ones are divided evenly, because chunks at
    the edges are padded.

    Example:
        >>> chunk_shape((12, 500, 500)), chunk_shape((24, 89, 180))
        ((12, 125, 125), (24, 89, 180))
    """
    if math.prod(shape) <= 2 * CHUNK_POINTS:
        return shape
    edges = [1] * len(shape)
    while True:
        longer = [i for i in range(len(shape)) if edges[i] < shape[i]]
        if not longer:
            break
        axis = min(longer, key=lambda i: (edges[i], -i))
        if 2 * math.prod(edges) > CHUNK_POINTS:
            break
        edges[axis] *= 2
    return tuple(-(-n // -(-n // edge)) for edge, n in zip(edges, shape, strict=True))


def slab_rows(item: Any, edge: int = 64) -> int:
    """Return the number of rows to read at once: whole chunks, about 64 MiB.

    Args:
        item: array with `shape` and `dtype`.
        edge: extent of a chunk along the first dim.
    """
    row = math.prod(item.shape[1:]) * item.dtype.itemsize
    rows = max(SLAB_BYTES // max(row, 1), 1)
    return int(max(rows - rows % edge, edge))


def slabs(item: Any) -> Iterator[np.ndarray]:
    """Yield slabs of `slab_rows` rows of an array."""
    edge = item.chunks[0] if getattr(item, "chunks", None) else 64
    rows = slab_rows(item, edge)
    for start in range(0, item.shape[0], rows):
        yield item[start : start + rows]

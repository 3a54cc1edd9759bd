"""Checks and chunk shapes for variables that the HDF5 filter or the Zarr codec codes by chunk.

Chunks support bounds in abs, rel and pw_rel, and nine missing values besides NaN, Inf and netCDF's
default fill. For other variables `refusal` and `VariableSurvey.refusal` return why a stream is
written.
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
from scitoolkit.compression.native.library import (
    ENHANCERS,
    ChunkExtras,
    chunk_parameters,
    encode_chunk,
)
from scitoolkit.compression.value_range import ArrayRange

CHUNK_POINTS = 1 << 18
# Of chunk.c, besides the fill value.
MAX_FILLS = 8
SLAB_BYTES = 1 << 26
_ALLOWED = {
    "codec": ("auto", "interpolation"),
    "enhancer": ("auto", "none"),
    "guarantee": ("strict",),
    "objective": ("size",),
}


@dataclass(frozen=True)
class VariableSurvey:
    """Range and missing values of a variable, found in one pass.

    Args:
        bound: requested bound.
        missing: missing values that occur.
        extent: smallest and largest valid value.
        absolute: the bound in the unit of the values, or that of pw_rel; 0 if every bit is stored.
        enhancer: name and bytes of the enhancer of all chunks, see `chunk_enhancer`.
    """

    bound: Bound
    missing: MissingValues
    extent: tuple[float, float]
    absolute: float
    enhancer: tuple[str, bytes] | None = None

    @property
    def fill(self) -> float | None:
        """The missing value that occurs besides netCDF's default fill; None if there is none."""
        return next((v for v in self.missing.values if v != NETCDF_FILL), None)

    @property
    def refusal(self) -> str:
        """Why chunks cannot represent the missing values, "" if they can."""
        return "more than nine missing values" if len(self.extras.fills) > MAX_FILLS else ""

    @property
    def extras(self) -> ChunkExtras:
        """What chunks need beside an absolute bound and one missing value."""
        others = tuple(v for v in self.missing.values if v not in (NETCDF_FILL, self.fill))
        return ChunkExtras(self.bound.mode == "pw_rel", others, self.enhancer)

    def header(self) -> dict[str, Any]:
        """Return the entries of a stream's header."""
        return {
            "bound": {"mode": self.bound.mode, "value": self.bound.value},
            "error_bound": self.absolute,
            "range": list(self.extent),
            **({"enhancer": {"name": self.enhancer[0]}} if self.enhancer else {}),
            **self.missing.header(),
        }


def unsuited(options: Options, *, by_name: bool = False) -> tuple[str, str]:
    """Return the first option that chunks do not support and its allowed values, else ("", "").

    Args:
        options: of the compression.
        by_name: chunks were requested. With an enhancer they raise the quality, but streams of
            other codecs do so more.

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
    if by_name and enhancer in ENHANCERS:
        if options.objective != "quality":
            return f"enhancer={enhancer} for {options.objective}", "objective: quality"
        del asked["enhancer"], asked["objective"]
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
    if bound.mode not in ("abs", "rel", "pw_rel") or (bound.mode == "pw_rel" and bound.value >= 1):
        return f"a bound {bound.mode}={bound.value:g}"
    if item.dtype.itemsize not in (4, 8) or not item.shape or not math.prod(item.shape):
        return f"{item.dtype} of shape {tuple(item.shape)}"
    return "a valid range" if missing.limited else ""


def survey(item: Any, bound: Bound, missing: MissingValues, where: str) -> VariableSurvey:
    """Return the range of a variable and the missing values that occur in it, in one pass.

    Args:
        item: variable that `refusal` accepts.
        bound: requested bound.
        missing: values that count as missing.
        where: name of the variable, for messages.

    Raises:
        NumericalError: the range of a relative bound is set by a few outliers.
    """
    seen, occurring = ArrayRange(), dict.fromkeys(missing.values, False)
    for part in slabs(item):
        values = np.asarray(part)
        seen.add(values[~missing.where(values)])
        for value in (v for v, seen_before in occurring.items() if not seen_before):
            occurring[value] = MissingValues((value,)).occurs_in(values)
    if bound.of_range:
        seen.refuse_outliers(where)
    extent = seen.extent or (0.0, 0.0)
    present = MissingValues(tuple(value for value, occurs in occurring.items() if occurs))
    absolute = bound.value if bound.mode == "pw_rel" else bound.absolute(*extent)
    return VariableSurvey(bound, present, extent, absolute)


def best_chunk_shape(item: Any, survey: VariableSurvey) -> tuple[int, ...]:
    """Return the extents of the chunks of a variable.

    A chunk is coded along three dims, and further ones are joined to the first of them. Of an
    array of more dims one chunk is coded for each dim that may have the extent 1 instead.

    Args:
        item: variable that `refusal` accepts.
        survey: result of `survey`.
    """
    shape = tuple(item.shape)
    long = [i for i, n in enumerate(shape) if n > 1]
    shapes = [chunk_shape(shape)]
    if len(long) > 3:
        shapes += [chunk_shape(shape, (*long[: len(long) - 4], axis)) for axis in long[-4:-1]]
    if len(shapes) == 1 or not survey.absolute > 0:
        return shapes[0]

    def share(extents: tuple[int, ...]) -> float:
        corner = ((n - c) // 2 for n, c in zip(shape, extents, strict=True))
        window = tuple(slice(i, i + c) for i, c in zip(corner, extents, strict=True))
        values = np.ascontiguousarray(item[window])
        words = chunk_parameters(extents, values.dtype, survey.absolute, survey.fill, survey.extras)
        return len(encode_chunk(values, words)) / values.nbytes

    return min(shapes, key=share)


def chunk_shape(shape: tuple[int, ...], single: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return the extents of a chunk of about 2¹⁸ points, as close to a cube as the array allows.

    An array of up to 2¹⁹ points is one chunk. Larger ones are divided evenly, because chunks at
    the edges are padded.

    Args:
        shape: of the array.
        single: dims along which a chunk has the extent 1.

    Example:
        >>> chunk_shape((12, 500, 500)), chunk_shape((24, 89, 180))
        ((12, 125, 125), (24, 89, 180))
    """
    if single:
        inner = iter(chunk_shape(tuple(n for i, n in enumerate(shape) if i not in single)))
        return tuple(1 if i in single else next(inner) for i in range(len(shape)))
    if math.prod(shape) <= 2 * CHUNK_POINTS:
        return shape
    edges = [1] * len(shape)
    while True:
        longer = [i for i in range(len(shape)) if edges[i] < shape[i]]
        if not longer:
            break
        # The shortest edge is doubled; of equal ones the last, along which memory is contiguous.
        axis = min(longer, key=lambda i: (edges[i], -i))
        if 2 * math.prod(edges) > CHUNK_POINTS:
            break
        edges[axis] *= 2
    # First the number of chunks along a dim, then the extent that divides the dim evenly.
    return tuple(-(-n // -(-n // edge)) for edge, n in zip(edges, shape, strict=True))


def slab_rows(item: Any, edge: int = 64) -> int:
    """Return the number of rows to read at once: whole chunks, about 64 MiB.

    Args:
        item: array with `shape` and `dtype`.
        edge: extent of a chunk along the first dim.
    """
    row = math.prod(item.shape[1:]) * item.dtype.itemsize
    rows = max(SLAB_BYTES // max(row, 1), 1)
    # Chunks begin at multiples of `edge`; other numbers of rows would cut chunks at ends of slabs.
    return int(max(rows - rows % edge, edge))


def slabs(item: Any) -> Iterator[np.ndarray]:
    """Yield slabs of `slab_rows` rows of an array."""
    edge = item.chunks[0] if getattr(item, "chunks", None) else 64
    rows = slab_rows(item, edge)
    for start in range(0, item.shape[0], rows):
        yield item[start : start + rows]


def sample(item: Any) -> Iterator[np.ndarray]:
    """Yield the first, middle and last chunk of an array."""
    extents = chunk_shape(tuple(item.shape))
    corners = []
    for part in (0.0, 0.5, 1.0):
        corner = tuple(round((n - c) * part) for n, c in zip(item.shape, extents, strict=True))
        if corner not in corners:
            corners.append(corner)
            window = tuple(slice(i, i + c) for i, c in zip(corner, extents, strict=True))
            yield np.ascontiguousarray(item[window])

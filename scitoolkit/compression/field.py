"""One field through one base codec, one enhancer and the corrections that make the bound strict.

A stream is base -> enhancer -> corrections. The enhancer lowers the mean square error and may
push some points out of the bound; so may a transform. Those points are corrected by integers
(`dyadic.outliers`), so that the bound holds at every point whatever came before. A little of the
bound (`GUARD`) is kept for the rounding of other machines. `relaxed` leaves the enhancer's points
where they are, at most 2 bounds away, and says so in the header.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scitoolkit.compression import dyadic, linear
from scitoolkit.compression.bases import LIBRARY_BASES
from scitoolkit.core.errors import DataError

GUARD = 1e-6
DYADIC = "dyadic"
# Bin widths of the dyadic codec in units of the bound: wider bins need more corrections.
STEPS = (1.5, 1.0)
# Libraries leave tables in their streams that deflate shortens; on a small field that pays.
DEFLATED_BYTES, DEFLATE_COST = 1 << 18, 8
# Share of the bound that a library codec gives away so that the clipped enhancer stays within it.
MARGIN = 0.5


@dataclass(frozen=True)
class Encoded:
    """A coded field, what it decodes to and what the header must say about it."""

    header: dict[str, Any]
    sections: dict[str, bytes]
    decoded: np.ndarray = field(repr=False)

    @property
    def num_bytes(self) -> int:
        """Bytes of the sections."""
        return sum(map(len, self.sections.values()))


def encode_base(name: str, values: np.ndarray, bound: float, step: float) -> Encoded:
    """Return the field coded by one base codec; the bound may not hold yet.

    Args:
        name: dyadic, sz3, sperr or zfp.
        values: finite C-contiguous float32 or float64.
        bound: absolute error bound.
        step: bin width over the bound, for the dyadic codec; for a library's, the share of the
            bound that it is given.
    """
    if name == DYADIC:
        stream, decoded = dyadic.encode(values, bound * step)
        header = {"name": DYADIC, "steps": step, "offset": stream.offset, "shrink": stream.shrink}
        return Encoded({"base": header}, {"base": stream.data}, decoded)
    codec, bound = LIBRARY_BASES[name], bound * step
    data = codec.encode(values, bound)
    decoded = codec.decode(data, values.shape, values.dtype, bound)
    header = {"name": name, "version": codec.version(), "error_bound": bound}
    packed = zlib.compress(data, 9) if len(data) <= DEFLATED_BYTES else data
    if len(packed) + DEFLATE_COST < len(data):
        header, data = {**header, "deflated": 1}, packed
    return Encoded({"base": header}, {"base": data}, decoded)


def with_linear(
    encoded: Encoded, values: np.ndarray, bound: float, num_classes: int, clip: float
) -> Encoded:
    """Return the coded field with a linear enhancer behind its base; `clip` in bounds."""
    enhancer, _ = linear.fit(values, encoded.decoded, bound, num_classes)
    header = {"name": "linear", "clip": clip}
    enhanced = enhancer.apply(encoded.decoded, clip * bound)
    return with_enhancer(encoded, header, enhancer.to_bytes(), enhanced)


def with_enhancer(
    encoded: Encoded, header: dict[str, Any], data: bytes, enhanced: np.ndarray
) -> Encoded:
    """Return the coded field with any enhancer behind its base."""
    header = dict(header)
    if encoded.header["base"]["name"] != DYADIC:
        # A library may round otherwise on another machine; an enhancer must see the same input.
        header["check"] = zlib.crc32(encoded.decoded.data)
    return Encoded(
        {**encoded.header, "enhancer": header}, {**encoded.sections, "enhancer": data}, enhanced
    )


def with_corrections(encoded: Encoded, values: np.ndarray, bound: float) -> Encoded:
    """Return the coded field with every point within the bound.

    Raises:
        OverflowError: a point is further away than a correction can say.
    """
    inner = bound * (1 - GUARD)
    corrections = dyadic.outliers(values, encoded.decoded, inner)
    if not corrections.any():
        return encoded
    decoded = encoded.decoded.copy()
    dyadic.correct(decoded, corrections, inner)
    data = dyadic.encode_integers(corrections)
    sections = {**encoded.sections, "corrections": data}
    return replace(encoded, sections=sections, decoded=decoded)


def decode_field(
    header: dict[str, Any],
    sections: dict[str, Any],
    shape: tuple[int, ...],
    dtype: np.dtype,
    bound: float,
) -> np.ndarray:
    """Return the field that the sections hold, in the working dtype.

    Args:
        header: base and enhancer, as `Encoded.header`.
        sections: bytes by name.
        shape: of the field.
        dtype: float32 or float64, as it was coded in.
        bound: the absolute error bound.
    """
    base = header["base"]
    values = _decode_base(base, sections["base"], shape, dtype, bound)
    enhancer = header.get("enhancer")
    if enhancer:
        if "check" in enhancer and zlib.crc32(values.data) != enhancer["check"]:
            raise DataError(
                f"the codec {base['name']} decodes other values here than where it was verified",
                allowed=f"{LIBRARY_BASES[base['name']].package} {base['version']}",
            )
        values = _enhance(enhancer, sections["enhancer"], values, bound)
    if "corrections" in sections:
        corrections = dyadic.decode_integers(sections["corrections"], shape)
        dyadic.correct(values, corrections, bound * (1 - GUARD))
    return values


def _decode_base(
    base: dict[str, Any], data: memoryview, shape: tuple[int, ...], dtype: np.dtype, bound: float
) -> np.ndarray:
    name = base["name"]
    if name == "constant":
        return np.full(shape, base["value"], dtype)
    if name == DYADIC:
        one, more = base["shrink"]
        stream = dyadic.DyadicStream(bound * base["steps"], base["offset"], (one, more), data)
        return dyadic.decode(stream, shape, dtype)
    if name not in LIBRARY_BASES:
        raise DataError(f"unknown base codec {name!r}", allowed=", ".join([DYADIC, *LIBRARY_BASES]))
    coded = _inflate(data, 2 * math.prod(shape) * dtype.itemsize) if "deflated" in base else data
    return LIBRARY_BASES[name].decode(bytes(coded), shape, dtype, base["error_bound"])


def _inflate(data: memoryview, array_bytes: int) -> bytes:
    """Return the inflated stream of a library, which is never much larger than its array."""
    limit = array_bytes + 4096
    try:
        coded = zlib.decompressobj().decompress(data, limit + 1)
    except zlib.error:
        raise DataError("damaged stream: the base cannot be inflated") from None
    if len(coded) > limit:
        raise DataError(f"damaged stream: a base of more than {limit} bytes")
    return coded


def _enhance(
    header: dict[str, Any], data: memoryview, values: np.ndarray, bound: float
) -> np.ndarray:
    values, clip = np.ascontiguousarray(values), header["clip"] * bound
    if header["name"] == "linear":
        return linear.LinearEnhancer.from_bytes(data, 1.0 / bound).apply(values, clip)
    if header["name"] == "network":
        from scitoolkit.compression.network import NetworkEnhancer

        return NetworkEnhancer.from_bytes(data).apply(values, bound, clip)
    raise DataError(f"unknown enhancer {header['name']!r}", allowed="linear, network")

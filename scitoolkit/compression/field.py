"""One field through one base codec, one enhancer and the corrections that make the bound strict.

A stream is base -> enhancer -> corrections. The enhancer lowers the mean square error and may
push some points out of the bound; so may a transform. Those points are corrected by integers
(`dyadic.outliers`), so that the bound holds at every point whatever came before. A little of the
bound (`GUARD`) is kept for the rounding of other machines. `relaxed` leaves the enhancer's points
where they are, at most 2 bounds away, and says so in the header.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scitoolkit.compression import dyadic
from scitoolkit.compression.codecs import ErrorBoundedCodec, codecs
from scitoolkit.compression.enhancers import Enhancer, enhancers
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.plugins import Kind

GUARD = 1e-6
# Share of the bound that a pointwise codec gives away so that the clipped enhancer stays within it.
MARGIN = 0.5


@dataclass(frozen=True)
class Encoded:
    """A coded field, what it decodes to and what the header must say about it.

    Attributes:
        error: see `CodedField.error`; None once anything follows the codec.
    """

    header: dict[str, Any]
    sections: dict[str, bytes]
    decoded: np.ndarray = field(repr=False)
    error: float | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the sections."""
        return sum(map(len, self.sections.values()))


def encode_base(
    codec: ErrorBoundedCodec, values: np.ndarray, bound: float, factor: float = 1.0
) -> Encoded:
    """Return the field coded by one codec; the bound may not hold yet.

    Args:
        codec: the codec and its settings.
        values: finite C-contiguous float32 or float64.
        bound: absolute error bound.
        factor: one of `codec.factors`, the share of the bound that the codec is given.
    """
    coded = codec.code(values, bound, factor)
    return Encoded({"base": coded.header}, {"base": coded.data}, coded.decoded, coded.error)


def codec_of(encoded: Encoded) -> type[ErrorBoundedCodec]:
    """Return the class of the codec of a coded field."""
    return codecs.get(encoded.header["base"]["name"])


def with_enhancer(
    encoded: Encoded, enhancer: Enhancer, data: bytes, bound: float, clip: float
) -> Encoded:
    """Return the coded field with a fitted enhancer behind its codec; `clip` in bounds."""
    header: dict[str, Any] = {"name": enhancer.name, "clip": clip}
    enhanced = enhancer.apply(data, encoded.decoded, bound, clip * bound)
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
    return replace(encoded, sections=sections, decoded=decoded, error=None)


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
        # Streams of format version 1; later ones have a CRC of what is decoded in the end.
        if "check" in enhancer and zlib.crc32(values.data) != enhancer["check"]:
            raise DataError(
                f"codec {base['name']} decodes other values here than where it was verified",
                allowed=f"{base['name']} in version {base.get('version')}",
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
    return _known(codecs, name)().restore(base, data, shape, dtype, bound)


def _enhance(
    header: dict[str, Any], data: memoryview, values: np.ndarray, bound: float
) -> np.ndarray:
    values, clip = np.ascontiguousarray(values), header["clip"] * bound
    return _known(enhancers, header["name"])().apply(data, values, bound, clip)


def _known(kind: Kind[Any], name: str) -> Any:
    """Return a member that a header names; an unknown one is the fault of the stream."""
    try:
        return kind.get(name)
    except ConfigError:
        raise DataError(
            f"the stream needs the {kind.name} {name!r}, which is not installed",
            allowed=", ".join(kind.names()),
        ) from None

"""Coding of one field by base codec, enhancer and corrections.

Enhancers and transform codecs may move points out of the bound. These points are corrected by
integers (`dyadic.outliers`), so that the bound holds at every point. A fraction `GUARD` of the
bound is reserved for rounding on other machines. With `relaxed`, enhanced points are not corrected;
their errors are at most twice the bound, and the header records this.

Codecs receive fields with a bound near 1: values and bound are multiplied by a power of two, which
is exact, because libraries end the process, overflow or lose digits at other magnitudes.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scitoolkit.compression import dyadic
from scitoolkit.compression.codecs import ErrorBoundedCodec, codecs
from scitoolkit.compression.codecs.base import USUAL_EXPONENTS
from scitoolkit.compression.enhancers import Enhancer, enhancers
from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.core.plugins import Kind

GUARD = 1e-6
# Enhancer's margin as a fraction of the bound of a pointwise codec, so that both fit the bound.
MARGIN = 0.5


@dataclass(frozen=True)
class Encoded:
    """Coded field with its sections, header entries and decoded values.

    Attributes:
        header: entries for the header of the stream.
        sections: bytes by name.
        decoded: the values that the sections decode to.
        error: see `CodedField.error`; None if an enhancer or corrections follow the codec.
    """

    header: dict[str, Any]
    sections: dict[str, bytes]
    decoded: np.ndarray = field(repr=False)
    error: float | None = None

    @property
    def num_bytes(self) -> int:
        """Total size of the sections in bytes."""
        return sum(map(len, self.sections.values()))


def encode_base(
    codec: ErrorBoundedCodec, values: np.ndarray, bound: float, factor: float = 1.0
) -> Encoded:
    """Return the field coded by one codec; the bound may not hold before corrections.

    Args:
        codec: the codec and its settings.
        values: finite C-contiguous float32 or float64.
        bound: absolute error bound.
        factor: one of `codec.factors`, the multiple of the bound that the codec uses.

    Raises:
        BackendError: the codec failed, or returned other than finite values of this shape.
    """
    try:
        coded = codec.code(values, bound, factor)
    except (MemoryError, BackendError, ConfigError):
        raise
    except Exception as error:  # of any library: no input of a user may end a compression
        raise BackendError(
            f"codec {codec.name} failed ({error!r})", fix="codec='auto' uses another"
        ) from error
    decoded = coded.decoded
    # The error of a codec that measured it holds; decoded values of others are not trusted.
    if coded.error is None and not (
        decoded.shape == values.shape
        and decoded.dtype == values.dtype
        and np.isfinite(decoded).all()
    ):
        raise BackendError(
            f"codec {codec.name} decodes to {decoded.dtype} {decoded.shape}, or to NaN or Inf",
            allowed=f"finite {values.dtype} {values.shape}",
            fix="codec='auto' uses another",
        )
    return Encoded({"base": coded.header}, {"base": coded.data}, coded.decoded, coded.error)


def exponent_of(bound: float) -> int:
    """Return the power of two by which values and bound are multiplied for a codec.

    Args:
        bound: absolute, > 0 and finite.

    Example:
        >>> exponent_of(1e-3), exponent_of(2.0**99), exponent_of(5e-324)
        (0, -100, 1073)
    """
    exponent = math.frexp(bound)[1]
    return 0 if abs(exponent) < USUAL_EXPONENTS else -exponent


def codec_of(encoded: Encoded) -> type[ErrorBoundedCodec]:
    """Return the class of the codec of a coded field."""
    return codecs.get(encoded.header["base"]["name"])


def with_enhancer(
    encoded: Encoded, enhancer: Enhancer, data: bytes, bound: float, clip: float
) -> Encoded:
    """Return the coded field with a fitted enhancer applied; `clip` is in units of the bound."""
    header: dict[str, Any] = {"name": enhancer.name, "clip": clip}
    enhanced = enhancer.apply(data, encoded.decoded, bound, clip * bound)
    return Encoded(
        {**encoded.header, "enhancer": header}, {**encoded.sections, "enhancer": data}, enhanced
    )


def with_corrections(encoded: Encoded, values: np.ndarray, bound: float) -> Encoded:
    """Return the coded field with corrections, so that every point is within the bound.

    Raises:
        OverflowError: an error exceeds the largest correction.
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
    """Decode a field in its working dtype.

    Args:
        header: base and enhancer, as `Encoded.header`.
        sections: bytes by name.
        shape: of the field.
        dtype: working dtype of the encoder, float32 or float64.
        bound: the absolute error bound.

    Raises:
        DataError: the stream needs a codec or enhancer that is not installed, or is damaged.
    """
    base = header["base"]
    values = _decode_base(base, sections["base"], shape, dtype, bound)
    enhancer = header.get("enhancer")
    if enhancer:
        # Only in streams of format version 1; later ones have a CRC of the final values.
        if "check" in enhancer and zlib.crc32(values.data) != enhancer["check"]:
            raise DataError(
                f"codec {base['name']} decodes to other values than when the bound was verified",
                allowed=f"{base['name']} in version {base.get('version')}",
            )
        values = _enhance(enhancer, sections["enhancer"], values, bound)
    if "corrections" in sections:
        # The same multiple of the bound as in `with_corrections`, of which corrections are steps.
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
    """Return a plug-in named in a header; raise DataError if it is unknown."""
    try:
        return kind.get(name)
    except ConfigError:
        raise DataError(
            f"the stream needs the {kind.name} {name!r}, which is not installed",
            allowed=", ".join(kind.names()),
        ) from None

"""Compression of single arrays within a verified error bound.

Every stream is decoded again before it is returned. The bound is verified at every point in
float64, and NaN, Inf and fill values are verified bit for bit; an array that no codec can code
within its bound is stored losslessly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from logging import Logger
from typing import Any, Literal

import h5py
import numpy as np

from scitoolkit.compression import choose, field
from scitoolkit.compression.arrays import as_numpy, split_mask, working_dtype
from scitoolkit.compression.bounds import Bound, max_error, psnr
from scitoolkit.compression.choose import Options
from scitoolkit.compression.codecs import ErrorBoundedCodec
from scitoolkit.compression.container import VALUES_CRC, pack
from scitoolkit.compression.decoding import (
    checksum,
    decode_part,
    decode_values,
    decompress,
    error_bound_of,
    times_power,
)
from scitoolkit.compression.enhancers import Enhancer
from scitoolkit.compression.field import Encoded
from scitoolkit.compression.lossless import encode_array, squeeze
from scitoolkit.compression.mask import bits_of, encode_mask, special_values
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.patches import apply_patch, encode_patch
from scitoolkit.compression.pointwise import LogField, exceeds
from scitoolkit.compression.stages import measured_stages
from scitoolkit.compression.value_range import ArrayRange
from scitoolkit.core.errors import NumericalError, ScitoolkitError
from scitoolkit.core.log import get_logger

log: Logger = get_logger(__name__)
MAX_PATCH = 0.02
# Arrays of fewer bytes are stored losslessly.
TINY = 128
PSNR_ROUNDS = 6
# Points of an array that are coded losslessly to decide about the whole.
PROBED = 1 << 13
Missing = MissingValues | float | Iterable[float] | None


def compress(
    array: Any,
    *,
    abs: float | None = None,
    rel: float | None = None,
    pw_rel: float | None = None,
    psnr: float | None = None,
    codec: str | ErrorBoundedCodec = "auto",
    enhancer: str | Enhancer = "auto",
    guarantee: Literal["strict", "relaxed"] = "strict",
    missing: Missing = None,
    train_seconds: float = 0.0,
    objective: Literal["size", "quality", "speed"] = "size",
) -> bytes:
    """Compress an array into a self-describing, checksummed stream.

    Args:
        array: numpy, torch, xarray or dask array of any dims; float16/32/64, or integers and
            booleans, which are stored losslessly.
        abs: largest |x - x'| in the array's unit. 0 is lossless.
        rel: largest |x - x'| as a fraction of the range of the finite values.
        pw_rel: largest |x - x'| / |x| at every point; zeros stay zeros.
        psnr: least 20 log10(range / rmse), in dB, instead of a pointwise bound.
        codec: `auto`, or a codec or its name (`scitoolkit ls codec`).
        enhancer: `auto`, `none`, or an enhancer or its name (`scitoolkit ls enhancer`).
        guarantee: `strict`, or `relaxed`, which allows errors of up to twice the bound after an
            enhancer.
        missing: one or several values that mark missing data, or `MissingValues`. They are
            excluded from the range and restored bit for bit, as NaN and Inf are. Attributes of an
            xarray array (`_FillValue`, `missing_value`, `valid_range`, ...) are respected too.
            A masked array is decompressed to a masked array.
        train_seconds: training time (s) of enhancer networks; 0 excludes them from `auto`.
        objective: `size` for the smallest stream within the bound, `quality` for the highest PSNR
            for its size, `speed` for a fast multi-threaded codec.

    Returns:
        The stream, which contains all that `decompress` requires.

    Raises:
        ConfigError: no or several bounds, an unknown name, or an unsupported dtype.
        NumericalError: the range that `rel` or `psnr` refers to is set by a few outliers.
        BackendError: no installed codec accepts the array.

    Example:
        >>> x = np.sin(np.linspace(0, 9, 4096, dtype=np.float32)).reshape(16, 16, 16)
        >>> stream = compress(x, rel=1e-3)
        >>> bool(np.abs(decompress(stream) - x).max() <= 1e-3 * (x.max() - x.min()))
        True
    """
    asked = Bound.choose(abs=abs, rel=rel, pw_rel=pw_rel, psnr=psnr)
    options = Options(
        codec=codec,
        enhancer=enhancer,
        guarantee=guarantee,
        train_seconds=train_seconds,
        objective=objective,
    )
    missing_values = missing_values_of(array, missing)
    return compress_within(as_numpy(array), asked, options, missing=missing_values)


def compress_within(
    values: np.ndarray,
    asked: Bound,
    options: Options,
    *,
    missing: MissingValues | None = None,
    extent: tuple[float, float] | None = None,
    where: str = "",
) -> bytes:
    """Compress a numpy array; see `compress`.

    Args:
        values: any array that `arrays.as_numpy` returns.
        asked: the bound.
        options: codec, enhancer, guarantee.
        missing: values that mark missing data.
        extent: smallest and largest valid value that `rel` and `psnr` refer to, if the array is a
            part of a larger one.
        where: name of the array, for messages.
    """
    header: dict[str, Any] = {
        "dtype": values.dtype.str,
        "shape": list(values.shape),
        "bound": {"mode": asked.mode, "value": asked.value},
    }
    if options.progressive:
        header["stages"] = []  # stays so where there is no coarse picture
    fixed: dict[str, bytes] = {}
    if isinstance(values, np.ma.MaskedArray):
        header["masked"] = values.fill_value.item()
    values, mask = split_mask(values)
    if mask is not None:
        fixed["masked"] = squeeze(np.packbits(mask).tobytes())
    if values.dtype.kind != "f" or values.nbytes < TINY or asked.value == 0:
        return _lossless(values, header, fixed)
    native = np.ascontiguousarray(values, values.dtype.newbyteorder("=")).reshape(values.shape)
    missing = missing or MissingValues()
    header |= missing.restricted_to(native).header()
    special = special_values(native, missing, mask)
    if special is not None and special.all():
        return _lossless(values, header, fixed)
    low, high = extent or value_extent(native, special, asked, where)
    # The bound is derived from the range as written, as a reader derives it: native codecs decode
    # with multiples of the bound, and another last digit would decode to other values.
    header["range"] = [_written(low, native.dtype), _written(high, native.dtype)]
    work = filled(native, special)
    span = (float(work.min()), float(work.max())) if extent else (low, high)
    prepared = PreparedField(native, work, span, special, missing, fixed)
    if asked.mode == "psnr":
        stream = _reach_psnr(prepared, header, options, asked, (low, high))
    else:
        stream = _bounded(prepared, header, options, error_bound_of(header))
    lossless = stream is None or _lossless_may_gain(native, len(stream))
    plain = _lossless(values, header, fixed) if lossless else b""
    if stream is None or (plain and len(plain) <= len(stream)):
        return plain
    return stream


@dataclass(frozen=True)
class PreparedField:
    """An array prepared for coding.

    Args:
        native: values in native byte order.
        work: values in the working dtype, special points filled.
        span: smallest and largest value of `work`.
        special: True where values are restored bit for bit; None if there are none.
        missing: missing values, to which no valid point may decode.
        fixed: sections that every stream of the array has.
    """

    native: np.ndarray
    work: np.ndarray
    span: tuple[float, float]
    special: np.ndarray | None
    missing: MissingValues
    fixed: dict[str, bytes]


def missing_values_of(array: Any, stated: Missing) -> MissingValues:
    """Return the given missing values together with those declared by the array's attributes."""
    missing_values, attributes = MissingValues.of(stated), getattr(array, "attrs", None)
    if isinstance(array, h5py.Dataset):
        return missing_values | MissingValues.of_dataset(array)
    if not isinstance(attributes, Mapping):
        return missing_values
    return missing_values | MissingValues.from_attributes(attributes, np.dtype(array.dtype))


def _bounded(
    prepared: PreparedField, header: dict[str, Any], options: Options, error_bound: float
) -> bytes | None:
    """Return the verified stream, or None if only lossless coding keeps the bound."""
    work = prepared.work
    low, high = span = prepared.span
    # Bins narrower than an ulp cannot be represented in the dtype. Equal values need no bins and
    # are coded as a constant at any bound.
    if low != high and not _ulp(low, high, work.dtype) <= error_bound < math.inf:
        return None
    if header["bound"]["mode"] == "psnr":
        header = {**header, "error_bound": error_bound}
    if options.guarantee == "relaxed":
        # Readers need it: without the mark, errors up to twice the bound would look like damage.
        header = {**header, "relaxed": "2x"}
    log_field = LogField.of(work) if header["bound"]["mode"] == "pw_rel" else None
    # A point-wise relative bound of a value is an absolute bound of its logarithm.
    values = work if log_field is None else log_field.logarithm
    if log_field is not None:
        span = (float(values.min()), float(values.max()))
    sections = {**prepared.fixed, **({} if log_field is None else log_field.sections())}
    if prepared.special is not None:
        sections["mask"] = encode_mask(prepared.native, prepared.special)
    middle, exponent = _constant(*span, values.dtype, error_bound), 0
    best: Encoded | None
    if middle is not None:
        best = Encoded({"base": {"name": "constant", "value": middle}}, {"base": b""}, values)
    else:
        exponent = field.exponent_of(error_bound)
        bound = math.ldexp(error_bound, exponent)
        try:
            best = choose.encode_best(times_power(values, exponent), bound, options)
        except MemoryError:
            raise ScitoolkitError("out of memory", fix="compress in slabs") from None
        if best is None:
            return None
    header |= best.header
    if exponent:
        header["exponent"] = exponent
    if options.progressive and header["base"]["name"] != "constant":
        # Coarse pictures require all sections in front of the coded field.
        sections = {**sections, **best.sections}
        header["stages"] = measured_stages(
            prepared.native,
            prepared.special,
            sections["base"],
            lambda data: decode_part(header, sections, data),
        )
    else:
        sections = {**best.sections, **sections}
    if (
        not exponent
        and log_field is None
        and best.error is not None
        and _as_decoded(prepared, best.decoded)
    ):
        # The codec measured its error on these values: decoding again would find the same.
        largest = min(rounded_up(best.error), error_bound)
        crc = {} if field.codec_of(best).checked else {VALUES_CRC: checksum(best.decoded)}
        return pack({**header, "max_error": largest, **crc}, sections)
    return _verified(prepared, header, sections, error_bound)


def _as_decoded(prepared: PreparedField, decoded: np.ndarray) -> bool:
    """Return whether the values decoded by the codec are the final values, without changes."""
    missing = prepared.missing
    return (
        prepared.special is None
        and decoded.dtype == prepared.native.dtype
        and not missing.limited
        and not missing.occurs_in(decoded)
    )


def _verified(
    prepared: PreparedField, header: dict[str, Any], sections: dict[str, bytes], error_bound: float
) -> bytes | None:
    """Return the stream after decoding it and patching points that rounding moved off the bound.

    The dtype of the array is coarser than the working dtype (float16) or as coarse as the
    corrections, so the final rounding may exceed the bound by an ulp. Returns None if too many
    points exceed it.
    """
    native, special = prepared.native, prepared.special
    shape, dtype = native.shape, native.dtype
    views = {name: memoryview(data) for name, data in sections.items()}
    decoded, crc = decode_values({**header, "dtype": dtype.str}, views, shape, dtype)
    # From here on decoded values are those of a reader, after the last rounding to the dtype.
    allowed = error_bound * (2 if header.get("relaxed") else 1)
    if header["bound"]["mode"] == "pw_rel":
        away, largest = exceeds(native, decoded, header["bound"]["value"])
    elif header["bound"]["mode"] == "psnr":
        away, largest = np.empty(0, np.int64), max_error(native, decoded)
    else:
        largest = max_error(_finite_only(native, special), _finite_only(decoded, special))
        away = np.empty(0, np.int64)
        # Written so that a NaN fails.
        if not largest <= allowed:
            with np.errstate(invalid="ignore"):
                error = np.abs(native.astype(np.float64) - decoded.astype(np.float64))
            away = np.flatnonzero(~(error.reshape(-1) <= allowed))
            if special is not None:
                away = away[~special.reshape(-1)[away]]
            error.reshape(-1)[away] = 0
            largest = float(error[np.isfinite(error)].max(initial=0.0))
    # A decoded value equal to a missing value would be masked by readers.
    away = np.union1d(away, _turned_missing(prepared, decoded))
    # Patches cost more than lossless coding of the field if many points need one.
    if len(away) > MAX_PATCH * native.size + 16:
        return None
    if len(away):
        sections = {**sections, "patch": encode_patch(native, away)}
        apply_patch(decoded, memoryview(sections["patch"]))
    if (
        special is not None
        # Bits, not values: NaN differs from itself, and -0 equals 0.
        and bits_of(native)[special].tobytes() != bits_of(decoded)[special].tobytes()
    ):
        raise NumericalError("a masked value was not restored bit for bit")
    largest = rounded_up(largest)
    if header["bound"]["mode"] in ("abs", "rel"):
        largest = min(largest, allowed)
    return pack({**header, "max_error": largest, VALUES_CRC: crc}, sections)


def _turned_missing(prepared: PreparedField, decoded: np.ndarray) -> np.ndarray:
    """Return the flat indices of valid points that decode to a missing value."""
    turned = prepared.missing.where(decoded)
    if prepared.special is not None:
        turned &= ~prepared.special
    return np.flatnonzero(turned)


def _reach_psnr(
    prepared: PreparedField,
    header: dict[str, Any],
    options: Options,
    asked: Bound,
    extent: tuple[float, float],
) -> bytes | None:
    """Return the smallest stream that reaches the PSNR, from a few iterations over the bound."""
    error_bound, best = asked.absolute(*extent), None
    # At a given PSNR, the stream with the highest PSNR for its size is the smallest.
    options = options.model_copy(update={"objective": "quality"})
    for _ in range(PSNR_ROUNDS):
        stream = _bounded(prepared, header, options, error_bound)
        if stream is None:
            return best
        keep = slice(None) if prepared.special is None else ~prepared.special
        reached = psnr(prepared.native[keep], np.asarray(decompress(stream))[keep])
        if reached >= asked.value and (best is None or len(stream) < len(best)):
            best = stream
        if asked.value <= reached < asked.value + 0.02 or not math.isfinite(reached):
            break
        # The error is about proportional to the bound, so that PSNR changes by 20 log10 of its
        # factor. The aim is 0.01 dB above the target, because a result just below it is useless.
        error_bound *= 10 ** ((reached - asked.value - 0.01) / 20)
    return best


def _lossless_may_gain(values: np.ndarray, num_bytes: int) -> bool:
    """Return whether lossless coding may take fewer bytes than a stream, from a part of the array.

    Whole numbers, classes and steps take fewer bytes exactly than within a tight bound.
    """
    if not 0.125 < num_bytes / values.nbytes <= 0.5:
        return num_bytes > values.nbytes // 2
    part = values.reshape(-1)[max(values.size - PROBED, 0) // 2 :][:PROBED]
    # A part codes a little worse than the whole, which has more repetitions.
    return len(encode_array(part)) / part.nbytes < 1.25 * num_bytes / values.nbytes


def _lossless(values: np.ndarray, header: dict[str, Any], fixed: dict[str, bytes]) -> bytes:
    header = {k: v for k, v in header.items() if k not in ("range", "valid")}
    header |= {"base": {"name": "lossless"}, "max_error": 0.0, VALUES_CRC: checksum(values)}
    return pack(header, {"base": encode_array(np.ascontiguousarray(values)), **fixed})


def value_extent(
    values: np.ndarray, special: np.ndarray | None, asked: Bound, where: str
) -> tuple[float, float]:
    """Return the smallest and largest value that is not special.

    Raises:
        NumericalError: the bound refers to the range, and a few outliers set the range.
    """
    seen = ArrayRange()
    seen.add(values if special is None else values[~special])
    if asked.of_range:
        seen.refuse_outliers(where)
    assert seen.extent is not None
    return seen.extent


def filled(values: np.ndarray, special: np.ndarray | None) -> np.ndarray:
    """Return the field in the working dtype, special points filled from their nearest neighbour.

    Regions filled without edges cost a codec almost no bytes.
    """
    if special is None:
        return np.ascontiguousarray(values, working_dtype(values.dtype))
    work = values.astype(working_dtype(values.dtype))
    from scipy.ndimage import distance_transform_edt

    nearest = distance_transform_edt(special, return_distances=False, return_indices=True)
    return np.ascontiguousarray(work[tuple(nearest)])


def _constant(low: float, high: float, dtype: np.dtype, error_bound: float) -> float | None:
    """Return the value that approximates those from low to high within the bound, or None."""
    # Halves are added because the sum of two large values overflows. The middle is rounded to the
    # dtype before the test: the rounded number is what is stored.
    middle = low if low == high else float(dtype.type(0.5 * low + 0.5 * high))
    inside = max(middle - low, high - middle) <= error_bound
    return middle if inside else None


def _ulp(low: float, high: float, dtype: np.dtype) -> float:
    """Return the ulp of the largest magnitude, the smallest supported bound."""
    limits = np.finfo(dtype)
    exponent = math.frexp(max(abs(low), abs(high)))[1] - 1
    return math.ldexp(float(limits.eps), max(exponent, int(limits.minexp)))


def _finite_only(values: np.ndarray, special: np.ndarray | None) -> np.ndarray:
    return values if special is None else values[~special]


def _written(value: float, dtype: np.dtype) -> float:
    """Return the float with the shortest decimals that round to the value in its dtype."""
    return float(str(dtype.type(value)))


def rounded_up(value: float) -> float:
    """Return a float of three significant digits that is not below the value."""
    if value == 0 or not math.isfinite(value):
        return value
    short = float(f"{value:.2e}")
    return short if short >= value else float(f"{value * 1.005:.2e}")

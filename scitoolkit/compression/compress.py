"""Compression and decompression of single arrays within a verified error bound.

Every stream is decoded again before it is returned. The bound is verified at every point in
float64, and NaN, Inf and fill values are verified bit for bit; an array that no codec can code
within its bound is stored losslessly.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
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
from scitoolkit.compression.codecs.interpolation import PART
from scitoolkit.compression.container import VALUES_CRC, pack, read_header, unpack
from scitoolkit.compression.enhancers import Enhancer
from scitoolkit.compression.field import Encoded
from scitoolkit.compression.lossless import decode_array, encode_array, squeeze, stretch
from scitoolkit.compression.mask import bits_of, encode_mask, restore_mask, special_values
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.patches import apply_patch, apply_repairs, encode_patch
from scitoolkit.compression.pointwise import LogField, exceeds
from scitoolkit.compression.stages import measured_stages
from scitoolkit.compression.value_range import ValueRange
from scitoolkit.core.errors import DataError, NumericalError, ScitoolkitError
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
    header["range"] = [_written(low, native.dtype), _written(high, native.dtype)]
    prepared = PreparedField(native, filled(native, special), special, missing, fixed)
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
        special: True where values are restored bit for bit; None if there are none.
        missing: missing values, to which no valid point may decode.
        fixed: sections that every stream of the array has.
    """

    native: np.ndarray
    work: np.ndarray
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


def decompress(stream: bytes | memoryview, *, max_bytes: int | None = None) -> np.ndarray:
    """Decompress a stream of `compress`.

    Args:
        stream: bytes returned by `compress`.
        max_bytes: size limit of the array; half of the machine's memory by default.

    Returns:
        The array within its bound, of the original shape and dtype.

    Raises:
        DataError: the stream is damaged, in another format or version, or the array too large.

    Example:
        >>> decompress(compress(np.arange(5), abs=0))
        array([0, 1, 2, 3, 4])
    """
    header, sections = unpack(stream)
    with contradictions_named():
        shape, dtype = _checked_size(header, max_bytes)
        if "slabs" in header:
            return _join(header, sections, shape, dtype, max_bytes)
        return _decode(header, sections, shape, dtype)


@contextlib.contextmanager
def contradictions_named() -> Iterator[None]:
    """Raise DataError for errors that follow from a header which contradicts its sections."""
    try:
        yield
    except ScitoolkitError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(f"damaged stream: the header contradicts itself ({error!r})") from None


def inspect_stream(stream: bytes | memoryview) -> dict[str, Any]:
    """Return the header of a stream, its size, compression ratio and section sizes (bytes)."""
    header = dict(read_header(stream))
    _, sections = unpack(stream)
    shape, dtype = _checked_size(header, 1 << 62)
    size = math.prod(shape) * dtype.itemsize
    header["sections"] = {name: len(data) for name, data in sections.items()}
    total = len(memoryview(stream).cast("B"))
    if "range" in header:
        header["error_bound"] = error_bound_of(header)
    return {**header, "bytes": total, "ratio": size / total}


def error_bound_of(header: dict[str, Any]) -> float:
    """Return the absolute bound on the codec's input (log|x| for pw_rel) from a header."""
    if "error_bound" in header:
        return float(header["error_bound"])
    low, high = header["range"]
    return Bound(header["bound"]["mode"], header["bound"]["value"]).absolute(low, high)


def max_error_of(stream: bytes) -> float:
    """Return the largest error of a stream, as measured when it was written."""
    return float(read_header(stream)["max_error"])


def _decode(
    header: dict[str, Any], sections: dict[str, memoryview], shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    # Streams of format version 1 have no checksum of decoded values; `blocks` has one per block.
    wanted = header.get(VALUES_CRC)
    values, crc = _decode_values(header, sections, shape, dtype, with_crc=wanted is not None)
    if wanted is not None and wanted != crc:
        base = header["base"]
        raise DataError(
            f"codec {base['name']} decodes to other values than when the bound was verified",
            allowed=f"{base['name']} in version {base.get('version', 'of the writer')}",
        )
    return _masked(values, header, sections)


def _decode_values(
    header: dict[str, Any],
    sections: dict[str, memoryview],
    shape: tuple[int, ...],
    dtype: np.dtype,
    *,
    with_crc: bool = True,
) -> tuple[np.ndarray, int]:
    """Return the array, and the CRC of the values decoded by its codec, or 0 without `with_crc`.

    For `pw_rel` the CRC is that of log|x|, because math libraries round exponentials differently.
    """
    if header["base"]["name"] == "lossless":
        exact = decode_array(sections["base"], shape, dtype)
        return exact, _crc(exact)
    native = dtype.newbyteorder("=")
    log_domain = header["bound"]["mode"] == "pw_rel"
    work = np.dtype(np.float64) if log_domain else working_dtype(native)
    exponent = header.get("exponent", 0)
    bound = math.ldexp(error_bound_of(header), exponent)
    values = times_power(field.decode_field(header, sections, shape, work, bound), -exponent)
    crc = _crc(values) if with_crc else 0
    if log_domain:
        values = LogField.restore(values, sections)
    with np.errstate(over="ignore"):
        out = values.astype(native, copy=False)
    if "repairs" in sections:
        apply_repairs(out, sections["repairs"], header["repair_step"])
    if "valid" in header:
        out = MissingValues.from_header(header).clip(out)
    if "patch" in sections:
        apply_patch(out, sections["patch"])
    if "mask" in sections:
        restore_mask(sections["mask"], out)
    return out.astype(dtype, copy=False), crc


def decode_part(
    header: dict[str, Any], sections: Mapping[str, Any], data: memoryview
) -> np.ndarray:
    """Return the array of the first bytes of its coded field, without corrections and patches.

    Args:
        header: of a progressive stream.
        sections: those in front of the coded field are used.
        data: the first bytes of the coded field.

    Raises:
        DataError: the bytes are too few, or damaged.
    """
    shape, dtype = _checked_size(header, None)
    coarse = {key: value for key, value in header.items() if key != "enhancer"}
    coarse["base"] = {**header["base"], PART: True}
    before = itertools.takewhile(lambda name: name != "base", sections)
    parts = {name: memoryview(sections[name]) for name in before} | {"base": data}
    values, _ = _decode_values(coarse, parts, shape, dtype, with_crc=False)
    return _masked(values, header, parts)


def _masked(
    values: np.ndarray, header: dict[str, Any], sections: dict[str, memoryview]
) -> np.ndarray:
    """Return `values` as a masked array if the header has a mask."""
    if "masked" not in header:
        return values
    packed = np.frombuffer(stretch(sections["masked"], -(-values.size // 8)), np.uint8)
    mask = np.unpackbits(packed, count=values.size).astype(bool).reshape(values.shape)
    return np.ma.MaskedArray(values, mask, fill_value=header["masked"])


def _crc(values: np.ndarray) -> int:
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return zlib.crc32(little.reshape(-1).view(np.uint8).data)


def _bounded(
    prepared: PreparedField, header: dict[str, Any], options: Options, error_bound: float
) -> bytes | None:
    """Return the verified stream, or None if only lossless coding keeps the bound."""
    work = prepared.work
    low, high = float(work.min()), float(work.max())
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
    sections = {**prepared.fixed, **({} if log_field is None else log_field.sections())}
    if prepared.special is not None:
        sections["mask"] = encode_mask(prepared.native, prepared.special)
    middle, exponent = _constant(values, error_bound), 0
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
        crc = {} if field.codec_of(best).checked else {VALUES_CRC: _crc(best.decoded)}
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
    decoded, crc = _decode_values({**header, "dtype": dtype.str}, views, shape, dtype)
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
    header |= {"base": {"name": "lossless"}, "max_error": 0.0, VALUES_CRC: _crc(values)}
    return pack(header, {"base": encode_array(np.ascontiguousarray(values)), **fixed})


def value_extent(
    values: np.ndarray, special: np.ndarray | None, asked: Bound, where: str
) -> tuple[float, float]:
    """Return the smallest and largest value that is not special.

    Raises:
        NumericalError: the bound refers to the range, and a few outliers set the range.
    """
    seen = ValueRange()
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


def _constant(values: np.ndarray, error_bound: float) -> float | None:
    """Return the value that approximates all others within the bound, or None."""
    low, high = float(values.min()), float(values.max())
    middle = low if low == high else float(values.dtype.type(0.5 * low + 0.5 * high))
    inside = max(middle - low, high - middle) <= error_bound
    return middle if inside else None


def _ulp(low: float, high: float, dtype: np.dtype) -> float:
    """Return the ulp of the largest magnitude, the smallest supported bound."""
    limits = np.finfo(dtype)
    exponent = math.frexp(max(abs(low), abs(high)))[1] - 1
    return math.ldexp(float(limits.eps), max(exponent, int(limits.minexp)))


def times_power(values: np.ndarray, exponent: int) -> np.ndarray:
    """Return the values times two to the power `exponent`, which is exact for normal numbers."""
    if not exponent:
        return values
    # Decoded values may round to Inf or zero; verification finds them.
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(values, exponent)


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


def _checked_size(
    header: dict[str, Any], max_bytes: int | None
) -> tuple[tuple[int, ...], np.dtype]:
    """Return shape and dtype of a header, validated before anything is allocated for them."""
    shape, dtype = tuple(header["shape"]), np.dtype(str(header["dtype"]))
    if dtype.kind not in "fiub" or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise DataError(f"damaged stream: shape {shape}, dtype {dtype}")
    if len(shape) > 32:
        raise DataError(f"damaged stream: {len(shape)} dims")
    limit = max_bytes if max_bytes is not None else _half_of_memory()
    size = math.prod(shape) * dtype.itemsize
    if size > limit:
        raise DataError(
            f"the array would take {size} bytes",
            allowed=f"{limit} bytes",
            fix="decompress(stream, max_bytes=...)",
        )
    return shape, dtype


def _half_of_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 1 << 33


def _join(header, sections, shape, dtype, max_bytes: int | None) -> np.ndarray:
    """Return the array of a stream of slabs along its first dim."""
    out = np.empty(shape, dtype)
    if "masked" in header:
        out = np.ma.MaskedArray(out, fill_value=header["masked"])
    start = 0
    for data in sections.values():
        part = decompress(data, max_bytes=max_bytes)
        if part.shape[1:] != shape[1:] or start + len(part) > shape[0] or part.dtype != dtype:
            raise DataError("damaged stream: a slab does not fit the array")
        out[start : start + len(part)] = part
        start += len(part)
    if start != shape[0]:
        raise DataError("damaged stream: slabs are missing")
    return out

"""Compress an array within an error bound that holds at every point, or not at all.

Nothing is returned that was not decoded again and compared with the input in float64: the bound,
the bits of every NaN, Inf and fill value, the dtype and the shape.
"""

from __future__ import annotations

import math
import os
import zlib
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
from scitoolkit.compression.container import VALUES_CRC, pack, read_header, unpack
from scitoolkit.compression.enhancers import Enhancer
from scitoolkit.compression.field import Encoded
from scitoolkit.compression.lossless import decode_array, encode_array, squeeze, stretch
from scitoolkit.compression.mask import encode_mask, restore_mask, special_values
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.patches import apply_patch, apply_repairs, encode_patch
from scitoolkit.compression.pointwise import LogField, exceeds
from scitoolkit.compression.value_range import ValueRange
from scitoolkit.core.errors import DataError, NumericalError, ScitoolkitError
from scitoolkit.core.log import get_logger

log: Logger = get_logger(__name__)
MAX_PATCH = 0.02
# Below this many bytes a lossy stream has nothing to gain over a lossless one.
TINY = 128
PSNR_ROUNDS = 6
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
    """Return the array as one self-describing, checksummed stream.

    Args:
        array: numpy, torch, xarray or dask array of any dims; float16/32/64, or integers and
            booleans, which are kept losslessly.
        abs: largest |x - x'| in the array's unit. 0 keeps every bit.
        rel: largest |x - x'| as a share of the range of the finite values.
        pw_rel: largest |x - x'| / |x| at every point; zeros stay zeros.
        psnr: least 20 log10(range / rmse), in dB, instead of a pointwise bound.
        codec: `auto`, or a codec or its name (`scitoolkit ls codec`).
        enhancer: `auto`, `none`, or an enhancer or its name (`scitoolkit ls enhancer`).
        guarantee: strict, or relaxed: with an enhancer, errors up to 2 bounds ("2x").
        missing: one or several values that stand for "missing", or `MissingValues`. They do not
            count towards the range and are restored bit for bit, as NaN and Inf are; attributes of
            an xarray array (`_FillValue`, `missing_value`, `valid_range`, ...) are honoured too.
            A masked array comes back as a masked array.
        train_seconds: training time of enhancer networks; 0 leaves them out of `auto`.
        objective: `size` for the smallest stream within the bound, `quality` for the highest PSNR
            for its bytes, `speed` for a fast codec whose blocks threads share.

    Returns:
        The stream; `decompress` needs nothing else.

    Raises:
        ConfigError: no or several bounds, an unknown name, a dtype that cannot be coded.
        NumericalError: the range that `rel` or `psnr` refers to is that of a few outliers.

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
    known = missing_values_of(array, missing)
    return compress_within(as_numpy(array), asked, options, missing=known)


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
        missing: values that stand for "missing".
        extent: smallest and largest valid value that `rel` and `psnr` refer to, when the array is
            a part of a larger one.
        where: name of the array, for messages.
    """
    header: dict[str, Any] = {
        "dtype": values.dtype.str,
        "shape": list(values.shape),
        "bound": {"mode": asked.mode, "value": asked.value},
    }
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
    large = stream is None or len(stream) > values.nbytes // 2
    plain = _lossless(values, header, fixed) if large else b""
    if stream is None or (plain and len(plain) <= len(stream)):
        return plain
    return stream


@dataclass(frozen=True)
class PreparedField:
    """An array on its way into a stream.

    Args:
        native: values in the machine's byte order.
        work: values in the working dtype, special points filled.
        special: where values are restored bit for bit, None for nowhere.
        missing: values that no other point may decode to.
        fixed: sections that are written in any case.
    """

    native: np.ndarray
    work: np.ndarray
    special: np.ndarray | None
    missing: MissingValues
    fixed: dict[str, bytes]


def missing_values_of(array: Any, given: Missing) -> MissingValues:
    """Return the missing values as given, and those that attributes of the array name."""
    known, attributes = MissingValues.of(given), getattr(array, "attrs", None)
    if isinstance(array, h5py.Dataset):
        return known | MissingValues.of_dataset(array)
    if not isinstance(attributes, Mapping):
        return known
    return known | MissingValues.from_attributes(attributes, np.dtype(array.dtype))


def decompress(stream: bytes | memoryview, *, max_bytes: int | None = None) -> np.ndarray:
    """Return the array that `compress` was given, within its bound.

    Args:
        stream: bytes made by `compress`.
        max_bytes: refuse larger arrays; half of the machine's memory unless given.

    Raises:
        DataError: the stream is damaged, foreign, of another version, or too large; never a
            wrong array.

    Example:
        >>> decompress(compress(np.arange(5), abs=0))
        array([0, 1, 2, 3, 4])
    """
    header, sections = unpack(stream)
    try:
        shape, dtype = _checked_size(header, max_bytes)
        if "slabs" in header:
            return _join(header, sections, shape, dtype, max_bytes)
        return _decode(header, sections, shape, dtype)
    except ScitoolkitError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(f"damaged stream: the header contradicts itself ({error!r})") from None


def inspect_stream(stream: bytes | memoryview) -> dict[str, Any]:
    """Return what a stream says about itself, without decoding: header, ratio, section sizes."""
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
    """Return the absolute bound on what the codec saw (log|x| for pw_rel) from a header."""
    if "error_bound" in header:
        return float(header["error_bound"])
    low, high = header["range"]
    return Bound(header["bound"]["mode"], header["bound"]["value"]).absolute(low, high)


def max_error_of(stream: bytes) -> float:
    """Return the largest error that a stream says was found when it was verified."""
    return float(read_header(stream)["max_error"])


def _decode(
    header: dict[str, Any], sections: dict[str, memoryview], shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    # Streams of format version 1 have no checksum of their values, blocks have one each.
    wanted = header.get(VALUES_CRC)
    values, crc = _decode_values(header, sections, shape, dtype, with_crc=wanted is not None)
    if wanted is not None and wanted != crc:
        base = header["base"]
        raise DataError(
            f"codec {base['name']} decodes other values here than where the bound was verified",
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
    """Return the array, and the CRC of what its codec decoded to; 0 if it is not wanted.

    For `pw_rel` that is log|x|, because libraries differ in the last digit of an exponential.
    """
    if header["base"]["name"] == "lossless":
        exact = decode_array(sections["base"], shape, dtype)
        return exact, _crc(exact)
    native = dtype.newbyteorder("=")
    log_domain = header["bound"]["mode"] == "pw_rel"
    work = np.dtype(np.float64) if log_domain else working_dtype(native)
    values = field.decode_field(header, sections, shape, work, error_bound_of(header))
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


def _masked(
    values: np.ndarray, header: dict[str, Any], sections: dict[str, memoryview]
) -> np.ndarray:
    """Return a masked array when one was compressed."""
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
    """Return the verified stream, or None when only a lossless one keeps the bound."""
    work = prepared.work
    low, high = float(work.min()), float(work.max())
    if low != high and (
        not math.isfinite(error_bound) or error_bound < _smallest_bound(low, high, work.dtype)
    ):
        return None
    if header["bound"]["mode"] == "psnr":
        header = {**header, "error_bound": error_bound}
    if options.guarantee == "relaxed":
        header["relaxed"] = "2x"
    log_field = LogField.of(work) if header["bound"]["mode"] == "pw_rel" else None
    values = work if log_field is None else log_field.logarithm
    sections = {**prepared.fixed, **({} if log_field is None else log_field.sections())}
    if prepared.special is not None:
        sections["mask"] = encode_mask(prepared.native, prepared.special)
    middle = _constant(values, error_bound)
    if middle is not None:
        best = Encoded({"base": {"name": "constant", "value": middle}}, {"base": b""}, values)
    else:
        try:
            best = choose.encode_best(values, error_bound, options)
        except MemoryError:
            raise ScitoolkitError("out of memory", fix="compress in slabs") from None
    header, sections = {**header, **best.header}, {**best.sections, **sections}
    if log_field is None and best.error is not None and _as_decoded(prepared, best.decoded):
        largest = min(rounded_up(best.error), error_bound)
        crc = {} if field.codec_of(best).checked else {VALUES_CRC: _crc(best.decoded)}
        return pack({**header, "max_error": largest, **crc}, sections)
    return _verified(prepared, header, sections, error_bound)


def _as_decoded(prepared: PreparedField, decoded: np.ndarray) -> bool:
    """Whether what a codec decodes to is, unchanged, what a reader will get."""
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
    """Decode, compare, repair the few points that rounding moved out, and write the largest error.

    The dtype of the file is coarser than the working dtype (float16) or as coarse as the
    corrections themselves, so a last rounding may pass the bound by an ulp.
    """
    native, special = prepared.native, prepared.special
    shape, dtype = native.shape, native.dtype
    views = {name: memoryview(data) for name, data in sections.items()}
    decoded, crc = _decode_values({**header, "dtype": dtype.str}, views, shape, dtype)
    allowed = error_bound * (2 if header.get("relaxed") else 1)
    if header["bound"]["mode"] == "pw_rel":
        away, largest = exceeds(native, decoded, header["bound"]["value"])
    elif header["bound"]["mode"] == "psnr":
        away, largest = np.empty(0, np.int64), max_error(native, decoded)
    else:
        largest = max_error(_finite_only(native, special), _finite_only(decoded, special))
        away = np.empty(0, np.int64)
        if not largest <= allowed:
            with np.errstate(invalid="ignore"):
                error = np.abs(native.astype(np.float64) - decoded.astype(np.float64))
            away = np.flatnonzero(~(error.reshape(-1) <= allowed))
            if special is not None:
                away = away[~special.reshape(-1)[away]]
            error.reshape(-1)[away] = 0
            largest = float(error[np.isfinite(error)].max(initial=0.0))
    away = np.union1d(away, _turned_missing(prepared, decoded))
    if len(away) > MAX_PATCH * native.size + 16:
        return None
    if len(away):
        sections = {**sections, "patch": encode_patch(native, away)}
        apply_patch(decoded, memoryview(sections["patch"]))
    if (
        special is not None
        and _bits(native)[special].tobytes() != _bits(decoded)[special].tobytes()
    ):
        raise NumericalError("a masked value was not restored bit for bit")
    largest = rounded_up(largest)
    if header["bound"]["mode"] in ("abs", "rel"):
        largest = min(largest, allowed)
    return pack({**header, "max_error": largest, VALUES_CRC: crc}, sections)


def _turned_missing(prepared: PreparedField, decoded: np.ndarray) -> np.ndarray:
    """Return the flat indices of valid values that a reader of the copy would take for missing."""
    turned = prepared.missing.where(decoded)
    if prepared.special is not None:
        turned &= ~prepared.special
    return np.flatnonzero(turned)


def _reach_psnr(
    prepared: PreparedField, header: dict[str, Any], options: Options, asked: Bound,
    extent: tuple[float, float],
) -> bytes | None:  # fmt: skip
    """Return the smallest stream found that reaches the PSNR, in a few rounds."""
    error_bound, best = asked.absolute(*extent), None
    # The highest PSNR for its bytes is the smallest stream at a PSNR.
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


def _lossless(values: np.ndarray, header: dict[str, Any], fixed: dict[str, bytes]) -> bytes:
    header = {k: v for k, v in header.items() if k not in ("range", "valid")}
    header |= {"base": {"name": "lossless"}, "max_error": 0.0, VALUES_CRC: _crc(values)}
    return pack(header, {"base": encode_array(np.ascontiguousarray(values)), **fixed})


def value_extent(
    values: np.ndarray, special: np.ndarray | None, asked: Bound, where: str
) -> tuple[float, float]:
    """Return smallest and largest value that is not special; refuse those of a few outliers."""
    seen = ValueRange()
    seen.add(values if special is None else values[~special])
    if asked.of_range:
        seen.refuse_outliers(where)
    assert seen.extent is not None
    return seen.extent


def filled(values: np.ndarray, special: np.ndarray | None) -> np.ndarray:
    """Return the field in the working dtype, special points filled from their nearest neighbour.

    A filled-in region without edges costs the codec next to nothing.
    """
    if special is None:
        return np.ascontiguousarray(values, working_dtype(values.dtype))
    work = values.astype(working_dtype(values.dtype))
    from scipy.ndimage import distance_transform_edt

    nearest = distance_transform_edt(special, return_distances=False, return_indices=True)
    return np.ascontiguousarray(work[tuple(nearest)])


def _constant(values: np.ndarray, error_bound: float) -> float | None:
    """Return the one value that stands for all of them within the bound, or None."""
    low, high = float(values.min()), float(values.max())
    middle = low if low == high else float(values.dtype.type(0.5 * low + 0.5 * high))
    inside = max(middle - low, high - middle) <= error_bound
    return middle if inside else None


def _smallest_bound(low: float, high: float, dtype: np.dtype) -> float:
    """Return the bound below which rounding alone would break it: an ulp of the largest value.

    Values and bounds whose sums or reciprocals leave the dtype's range are not for codecs either.
    """
    largest, limits = max(abs(low), abs(high)), np.finfo(dtype)
    if largest > float(limits.max) / 64:
        return math.inf
    return max(float(np.spacing(dtype.type(largest))), 1e3 * float(limits.tiny))


def _finite_only(values: np.ndarray, special: np.ndarray | None) -> np.ndarray:
    return values if special is None else values[~special]


def _bits(values: np.ndarray) -> np.ndarray:
    return values.view(f"u{values.dtype.itemsize}")


def _written(value: float, dtype: np.dtype) -> float:
    """Return the shortest float that stands for the value in its dtype."""
    return float(str(dtype.type(value)))


def rounded_up(value: float) -> float:
    """Return a float of three digits that is not below the value."""
    if value == 0 or not math.isfinite(value):
        return value
    short = float(f"{value:.2e}")
    return short if short >= value else float(f"{value * 1.005:.2e}")


def _checked_size(
    header: dict[str, Any], max_bytes: int | None
) -> tuple[tuple[int, ...], np.dtype]:
    """Return shape and dtype after checking them: nothing is allocated for what they say before."""
    shape, dtype = tuple(header["shape"]), np.dtype(str(header["dtype"]))
    if dtype.kind not in "fiub" or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise DataError(f"damaged stream: shape {shape}, dtype {dtype}")
    if len(shape) > 32:
        raise DataError(f"damaged stream: {len(shape)} dims")
    limit = max_bytes if max_bytes is not None else _half_of_memory()
    size = math.prod(shape) * dtype.itemsize
    if size > limit:
        raise DataError(
            f"the array would take {size} bytes", allowed=f"{limit} bytes",
            fix="decompress(stream, max_bytes=...)",
        )  # fmt: skip
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

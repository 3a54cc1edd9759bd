"""Bindings of the C library of the codecs, which is compiled on first use.

Python, the HDF5 filter and the Zarr codecs share this C implementation; docs/format/ specifies the
formats.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scitoolkit.compression.kernel_arguments import as_argument, extents, folded, pointer
from scitoolkit.compression.limits import limits_of, refuse_falling
from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.ops.codegen import load_library
from scitoolkit.ops.codegen.compile import read

# Without contraction, because encoder and decoder must round identically on all machines.
FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
_TYPES = {"f4": ("float", "32", 8), "f8": ("double", "64", 4)}
PER_TYPE = (
    "sck_capacity",
    "sck_encode",
    "sck_decode",
    "sck_decode_part",
    "sck_scan",
    "sck_fit_blocks",
    "sck_largest",
    "sck_block_capacity",
    "sck_block_workspace",
    "sck_encode_block",
    "sck_decode_block",
    "linear_accumulate",
    "linear_apply",
    "linear_max_error",
    "network_gather",
    "network_apply",
)
_PER_TYPE_FILES = ("predict", "codec", "wavelet", "blocks", "enhance")
_MEMORY, _SPACE = -2, -3
_THOROUGH, _LEVELS = 1, 2
# Constants of the parameters of a chunk, see docs/format/chunk.md.
PARAMETERS, EXTENDED, _DOUBLE, _BIG, _FILL = 0x53434B01, 0x53434B02, 1, 2, 4
_RELATIVE, _FILLS, _ENHANCER = 1, 2, 3
ENHANCERS = ("linear", "network")
"""Enhancers that the C library applies to chunks."""


@functools.cache
def source() -> str:
    """Return the C source of the codecs for float32 and float64.

    Example:
        >>> "sck_decode" in source()
        True
    """
    parts = [read(__file__, f"{name}.c") for name in ("common", "entropy", "tables")]
    for real, bits, lanes in _TYPES.values():
        parts += [f"#define REAL {real}\n#define NAME(x) x##_{bits}\n"]
        parts += [f"#define LANES_OF_REAL {lanes}\n"]
        parts += [read(__file__, f"{name}.c") for name in _PER_TYPE_FILES]
        parts += ["#undef REAL\n#undef NAME\n#undef LANES_OF_REAL\n"]
    return "\n".join([*parts, *(read(__file__, f"{name}.c") for name in ("lossless", "chunk"))])


@functools.cache
def _library() -> ctypes.CDLL:
    library = load_library(source(), FLAGS)
    for _, bits, _ in _TYPES.values():
        for name in PER_TYPE:
            getattr(library, f"{name}_{bits}").restype = ctypes.c_int64
    for name in ("sck_chunk_capacity", "sck_chunk_encode", "sck_chunk_decode"):
        getattr(library, name).restype = ctypes.c_int64
    return library


@functools.cache
def unavailable() -> str:
    """Return why the library cannot be compiled, "" if it can.

    Example:
        >>> unavailable()
        ''
    """
    try:
        _library()
    except BackendError as error:
        return f"dyadic and interpolation, compiled on first use, are not available: {error}"
    return ""


def encode(
    values: np.ndarray, bound: float, *, thorough: bool, levels: bool = False
) -> tuple[bytes, np.ndarray, float]:
    """Return the coded field, its decoded values, and the largest error.

    The bytes are decoded again, and every decoded value is compared with its original.

    Args:
        values: finite C-contiguous float32 or float64 array, any dims.
        bound: largest |x - x'|, absolute, > 0; it holds at every point.
        thorough: compare the methods on the whole field instead of a block of it.
        levels: use only methods that code coarse levels first, for `decode` of a part.
    """
    dims, decoded, error = folded(values.shape), np.empty_like(values), ctypes.c_double()
    out = np.empty(call("sck_capacity", values.dtype, values.size), np.uint8)
    used = call(
        "sck_encode",
        values.dtype,
        extents(dims),
        values,
        None,
        float(bound),
        _THOROUGH * thorough | _LEVELS * levels,
        out,
        out.size,
        decoded,
        ctypes.byref(error),
    )
    check(used)
    return out[:used].tobytes(), decoded, error.value


def decode(
    data: bytes | memoryview,
    shape: tuple[int, ...],
    dtype: np.dtype,
    bound: float,
    *,
    part: bool = False,
) -> np.ndarray:
    """Return the decoded field, bit for bit as `encode` returned it.

    Args:
        data: as `encode` returned it.
        shape: of the field.
        dtype: float32 or float64.
        bound: as in `encode`.
        part: the data may be the first bytes only; points without data are interpolated.

    Raises:
        DataError: the bytes are inconsistent.
    """
    packed, decoded = np.frombuffer(data, np.uint8), np.empty(shape, dtype)
    check(
        call(
            "sck_decode_part" if part else "sck_decode",
            dtype,
            extents(folded(shape)),
            None,
            float(bound),
            packed,
            packed.size,
            decoded,
        )
    )
    return decoded


@dataclass(frozen=True)
class ChunkExtras:
    """What chunks need beside an absolute bound and one fill value; see docs/format/chunk.md.

    Attributes:
        relative: the bound is a fraction of every value; zeros and signs are exact.
        fills: further values that are restored bit for bit, at most 8.
        enhancer: `linear` or `network` and its bytes, which correct decoded values within the
            bound; None for no enhancer. All chunks share it.
    """

    relative: bool = False
    fills: tuple[float, ...] = ()
    enhancer: tuple[str, bytes] | None = None

    def words(self, dtype: np.dtype) -> list[int]:
        """Return the tail of the parameters of chunks of a dtype; [] if nothing is extra."""
        tail = [_RELATIVE << 24] if self.relative else []
        if self.fills:
            raw = [word for value in self.fills for word in _bits(value, dtype)]
            tail += [_FILLS << 24 | len(raw), *raw]
        if self.enhancer:
            name, data = self.enhancer
            body = np.frombuffer(data + bytes(-len(data) % 4), "<u4").tolist()
            head = (ENHANCERS.index(name) + 1) << 24 | len(data)
            tail += [_ENHANCER << 24 | 1 + len(body), head, *body]
        return tail

    def settings(self) -> dict[str, Any]:
        """Return JSON entries of the codec's settings, from which `of` returns the extras."""
        entries: dict[str, Any] = {"relative": True} if self.relative else {}
        if self.fills:
            entries["fills"] = list(self.fills)
        if self.enhancer:
            entries["enhancer"] = [self.enhancer[0], self.enhancer[1].hex()]
        return entries

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ChunkExtras:
        """Return the extras of a codec's settings.

        Raises:
            ConfigError: they are not as `settings` returns them.
            DataError: the limits of the enhancer do not rise.
        """
        try:
            enhancer = settings.get("enhancer")
            named = enhancer and (ENHANCERS[ENHANCERS.index(enhancer[0])], enhancer[1])
            data = named and (named[0], bytes.fromhex(named[1]))
            fills = tuple(float(value) for value in settings.get("fills") or ())
            extras = cls(bool(settings.get("relative", False)), fills, data or None)
        except (TypeError, ValueError, IndexError) as error:
            raise ConfigError(f"settings of the codec: {error}") from None
        if extras.enhancer:
            name, stored = extras.enhancer
            refuse_falling(limits_of(name, stored), name)
        return extras


def enhancer_in(parameters: Sequence[int]) -> tuple[str, bytes] | None:
    """Return name and bytes of the enhancer in the parameters of chunks; None if there is none.

    Raises:
        DataError: its limits do not rise.
    """
    words = list(parameters)
    # Words: magic, flags, bound (2), fill (2), number of dims, the dims, then entries of one word
    # with kind (8 bits) and length (24 bits) and so many words; see docs/format/chunk.md.
    at = 7 + words[6] if len(words) > 7 and words[0] == EXTENDED else len(words)
    while at < len(words):
        kind, count = words[at] >> 24, words[at] & 0xFFFFFF
        if kind == _ENHANCER:
            head, *body = words[at + 1 : at + 1 + count]
            data = np.array(body, "<u4").tobytes()[: head & 0xFFFFFF]
            name = ENHANCERS[(head >> 24) - 1]
            refuse_falling(limits_of(name, data), name)
            return name, data
        at += 1 + count
    return None


def _bits(value: float, dtype: np.dtype) -> tuple[int, int]:
    """Return the bits of a value in a dtype as two words, low first."""
    raw = np.array(value, dtype.newbyteorder("<")).tobytes().ljust(8, b"\0")
    low, high = struct.unpack("<II", raw)
    return low, high


def chunk_parameters(
    shape: tuple[int, ...],
    dtype: np.dtype,
    bound: float,
    fill: float | None = None,
    extras: ChunkExtras | None = None,
) -> np.ndarray:
    """Return the parameters (uint32) of an array's chunks, as HDF5 stores them.

    Args:
        shape: of a chunk, at least one dim.
        dtype: float32 or float64, either byte order.
        bound: error bound, absolute unless the extras say otherwise; 0 is lossless.
        fill: a value that is restored bit for bit wherever it occurs.
        extras: see there.

    Raises:
        ConfigError: unsupported dtype or bound.
    """
    if dtype.kind != "f" or dtype.itemsize not in (4, 8):
        raise ConfigError(f"a chunk of {dtype}", allowed="float32 or float64")
    tail = (extras or ChunkExtras()).words(dtype)
    if not (bound >= 0 and np.isfinite(bound)):
        raise ConfigError(f"bound {bound!r}", allowed="a positive number, or 0 for lossless")
    if extras and extras.relative and not bound < 1:
        raise ConfigError(f"relative bound {bound!r}", allowed="below 1")
    flags = _DOUBLE * (dtype.itemsize == 8) | _BIG * (dtype.byteorder == ">")
    flags |= _FILL * (fill is not None)
    shape = shape or (1,)
    words = [
        EXTENDED if tail else PARAMETERS,
        flags,
        *struct.unpack("<II", struct.pack("<d", bound)),
        *_bits(fill or 0.0, dtype),
        len(shape),
        *shape,
        *tail,
    ]
    return np.array(words, np.uint32)


def encode_chunk(values: np.ndarray, parameters: np.ndarray) -> bytes:
    """Return one framed chunk; special values are exact, all others within the bound.

    Args:
        values: C-contiguous, of the shape and dtype of the parameters.
        parameters: see `chunk_parameters`.
    """
    out = np.empty(_library().sck_chunk_capacity(ctypes.c_int64(values.nbytes)), np.uint8)
    used = _library().sck_chunk_encode(
        pointer(parameters),
        ctypes.c_size_t(parameters.size),
        pointer(values),
        ctypes.c_int64(values.nbytes),
        pointer(out),
        ctypes.c_int64(out.size),
    )
    check(used)
    return out[:used].tobytes()


def decode_chunk(
    data: bytes | memoryview, shape: tuple[int, ...], dtype: np.dtype, parameters: np.ndarray
) -> np.ndarray:
    """Decode a framed chunk.

    Raises:
        DataError: a checksum does not match, or the bytes are inconsistent with the parameters.
    """
    packed, values = np.frombuffer(data, np.uint8), np.empty(shape, dtype)
    check(
        _library().sck_chunk_decode(
            pointer(parameters),
            ctypes.c_size_t(parameters.size),
            pointer(packed),
            ctypes.c_int64(packed.size),
            pointer(values),
            ctypes.c_int64(values.nbytes),
        )
    )
    return values


def call(name: str, dtype: np.dtype, *arguments: object) -> int:
    """Call the float32 or float64 variant of a library function; see `as_argument`."""
    bits = _TYPES[dtype.str[1:]][1]
    return int(getattr(_library(), f"{name}_{bits}")(*map(as_argument, arguments)))


def check(status: int) -> None:
    """Raise the exception that corresponds to a negative status of a library function."""
    if status == _MEMORY:
        raise MemoryError
    if status == _SPACE:
        raise OverflowError
    if status < 0:
        raise DataError("damaged stream: a checksum or the coded integers do not match")

"""Base class of error-bounded codecs, and the plug-in kind `codec`.

Third-party libraries abort the process, lose NaN or break their bound on input outside their
limits. A codec therefore first reports whether it accepts an array (`refusal`), and is only called
with finite C-contiguous float32 or float64. The caller verifies decoded values against the bound.
"""

from __future__ import annotations

import functools
import math
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

import numpy as np

from scitoolkit.core.config import Config
from scitoolkit.core.errors import DataError, missing_extra
from scitoolkit.core.plugins import Kind, NeedsPackages

Shape = tuple[int, ...]
# Streams of some libraries contain uncompressed tables, so deflate pays off on small fields.
DEFLATED_BYTES, DEFLATE_COST = 1 << 18, 8
# Bounds between 2^-60 and 2^60 are accepted: SPERR ends the process at 2^63, others overflow.
USUAL_EXPONENTS = 60


@dataclass(frozen=True)
class CodedField:
    """Coded field with its decoded values and the header entries that its decoder reads.

    Attributes:
        data: the coded field.
        decoded: the values that `data` decodes to.
        header: JSON-serialisable entries, with the codec's `name`.
        error: largest error if the codec decoded `data` and compared every point; None leaves
            this to the caller.
    """

    data: bytes
    decoded: np.ndarray = field(repr=False)
    header: dict[str, Any]
    error: float | None = None


class ErrorBoundedCodec(NeedsPackages, Config):
    """Base of a codec with an absolute error bound; fields of a subclass are its settings.

    A subclass sets `name` and implements `encode` and `decode`. Settings act on `encode` only:
    streams are decoded by `Codec()`, so `encode` must store whatever else `decode` requires.

    Attributes:
        requires: importable packages; the version of the first is written into streams.
        dims: minimum and maximum number of dims after `fold`.
        min_extent: minimum extent of a dim after `fold`.
        dtypes: dtypes that `encode` accepts.
        pointwise: `decode` keeps the bound at every point. Otherwise the error bound is a
            quantisation step, and the caller stores corrections of the points outside the bound.
        automatic: `codec: auto` tries it; reading such streams requires its packages.
        monotone: a larger bound never gives more bytes, so that two bounds measure the gain in dB
            per byte.
        adaptive: its entropy coder learns from all values, so that large fields take fewer bytes
            per value than blocks of them.
        fast: used by `objective: speed`.
        fills_bound: errors fill the bound everywhere, which gives a low PSNR for the size;
            `objective: quality` does not try it.
        checked: the coded bytes contain checksums of the decoded values.
        reference: a third-party codec that reports and benchmarks compare with.

    Example:
        >>> from scitoolkit.compression.codecs import codecs
        >>> sorted(codecs)[0], codecs.get("sz3").dims
        ('blocks', (1, 4))
    """

    name: str
    dims: ClassVar[tuple[int, int]] = (1, 4)
    min_extent: ClassVar[int] = 1
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    pointwise: ClassVar[bool] = True
    automatic: ClassVar[bool] = False
    monotone: ClassVar[bool] = False
    adaptive: ClassVar[bool] = False
    fast: ClassVar[bool] = False
    fills_bound: ClassVar[bool] = False
    checked: ClassVar[bool] = False
    reference: ClassVar[bool] = True

    @abstractmethod
    def encode(self, values: np.ndarray, error_bound: float) -> bytes:
        """Return the coded field.

        Args:
            values: finite C-contiguous float32 or float64 array that `refusal` accepts.
            error_bound: largest |x - x'|, absolute, > 0.
        """

    @abstractmethod
    def decode(self, data: bytes, shape: Shape, dtype: np.dtype, error_bound: float) -> np.ndarray:
        """Return the decoded values.

        Args:
            data: as `encode` returned it, checksum verified.
            shape: of the field.
            dtype: float32 or float64.
            error_bound: as in `encode`.
        """

    def refusal(self, values: np.ndarray, error_bound: float) -> str:
        """Return why the codec does not accept these values at this bound, "" if it does."""
        shape, (fewest, most) = fold(values.shape, self.dims[1]), self.dims
        if values.dtype.name not in self.dtypes:
            return f"{self.name} needs {' or '.join(self.dtypes)}, got {values.dtype}"
        if len(shape) < fewest or min(shape) < self.min_extent:
            needs = f"{fewest} to {most} dims of at least {self.min_extent}"
            return f"{self.name} needs {needs}, got {shape}"
        if not 2.0**-USUAL_EXPONENTS <= error_bound <= 2.0**USUAL_EXPONENTS:
            needs = f"a bound within a factor 2^{USUAL_EXPONENTS} of 1"
            return f"{self.name} needs {needs}, got {error_bound:g}: scale values and bound"
        return ""

    def factors(self, num_points: int) -> Sequence[float]:
        """Return the multiples of the bound to try on a field; the best result is used."""
        return (1.0,)

    def size_factors(self, num_points: int) -> Sequence[float]:
        """Return the multiples of the bound to try for the smallest stream."""
        return self.factors(num_points)

    def version(self) -> str:
        """Return the version of the library, which is stored in the header of a stream."""
        try:
            return _version_of(self.requires[0]) if self.requires else "1"
        except PackageNotFoundError:
            raise missing_extra(self.requires[0], "compression", f"codec {self.name}") from None

    def code(self, values: np.ndarray, error_bound: float, factor: float = 1.0) -> CodedField:
        """Return the field coded with `factor` times the bound, and its decoded values."""
        error_bound *= factor
        data = self.encode(values, error_bound)
        decoded = self.decode(data, values.shape, values.dtype, error_bound)
        header = {"name": self.name, "version": self.version(), "error_bound": error_bound}
        packed = zlib.compress(data, 9) if len(data) <= DEFLATED_BYTES else data
        if len(packed) + DEFLATE_COST < len(data):
            header, data = {**header, "deflated": 1}, packed
        return CodedField(data, decoded, header)

    def restore(
        self, header: dict[str, Any], data: memoryview, shape: Shape, dtype: np.dtype, bound: float
    ) -> np.ndarray:
        """Decode a `CodedField`.

        Args:
            header: as `code` returned it.
            data: the coded field, checksum verified.
            shape: of the field.
            dtype: float32 or float64.
            bound: the error bound of the stream, before `factor`.
        """
        limit = 2 * math.prod(shape) * dtype.itemsize
        coded = _inflate(data, limit) if "deflated" in header else bytes(data)
        return self.decode(coded, shape, dtype, header["error_bound"])


class WindowedCodec(ErrorBoundedCodec):
    """Base of a codec whose stream consists of checksummed parts that can be decoded separately."""

    checked: ClassVar[bool] = True

    @abstractmethod
    def restore_window(
        self,
        header: dict[str, Any],
        data: memoryview,
        shape: Shape,
        dtype: np.dtype,
        bound: float,
        window: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
    ) -> np.ndarray:
        """Decode a window of the field.

        Args:
            header: as `code` returned it.
            data: the coded field, checksum not verified.
            shape: of the whole field.
            dtype: float32 or float64.
            bound: the error bound of the stream.
            window: begin and end along each of the three folded dims.
        """


codecs: Kind[type[ErrorBoundedCodec]] = Kind(
    "codec",
    "compresses a field within an error bound",
    contract="scitoolkit.testing:CodecContract",
)


# The search of a package's metadata takes longer than coding a sample of a field.
_version_of = functools.cache(version)


def fold(shape: Shape, max_dims: int) -> Shape:
    """Return a shape without unit dims, leading dims merged to leave at most `max_dims`.

    Example:
        >>> fold((2, 3, 1, 4, 5), 3), fold((1, 1), 3)
        ((6, 4, 5), (1,))
    """
    sizes = [n for n in shape if n != 1] or [1]
    split = max(len(sizes) - max_dims, 0)
    return (math.prod(sizes[: split + 1]), *sizes[split + 1 :])


def _inflate(data: memoryview, array_bytes: int) -> bytes:
    """Inflate the stream of a library, which is never much larger than its array."""
    limit = array_bytes + 4096
    try:
        coded = zlib.decompressobj().decompress(data, limit + 1)
    except zlib.error:
        raise DataError("damaged stream: the base cannot be inflated") from None
    if len(coded) > limit:
        raise DataError(f"damaged stream: a base of more than {limit} bytes")
    return coded

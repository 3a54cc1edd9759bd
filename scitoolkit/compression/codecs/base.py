"""Error-bounded codecs as plug-ins: one class a codec, each behind our own checks.

Libraries end the process, lose NaN or break their bound on input outside their limits, so a codec
first states whether it can take an array (`refusal`), and all of them only ever see finite
C-contiguous float32 or float64. What they decode is verified against the bound by the caller.
"""

from __future__ import annotations

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
# Libraries leave tables in their streams that deflate shortens; on a small field that pays.
DEFLATED_BYTES, DEFLATE_COST = 1 << 18, 8


@dataclass(frozen=True)
class CodedField:
    """A coded field, the values that it decodes to, and the header entries its decoder needs.

    Attributes:
        error: largest error, where the codec has decoded its bytes again and compared every point;
            None leaves this to the caller.
    """

    data: bytes
    decoded: np.ndarray = field(repr=False)
    header: dict[str, Any]
    error: float | None = None


class ErrorBoundedCodec(NeedsPackages, Config):
    """Base of a codec with an absolute error bound; fields of a subclass are its settings.

    A subclass sets `name`, and writes `encode` and `decode`. Settings act on `encode` only: a
    stream is decoded by `Codec()`, so that whatever else `decode` needs belongs into the bytes.

    Attributes:
        requires: importable packages, the first of which has its version written into streams.
        dims: fewest and most dims after `fold`.
        min_extent: least extent of a dim after `fold`.
        dtypes: dtypes that `encode` takes.
        pointwise: `decode` keeps the bound at every point; otherwise the error bound is a
            quantisation step, and the caller stores corrections of the points beyond it.
        automatic: `codec: auto` tries it; such streams cannot be read without its package.
        monotone: fewer bytes for a larger bound without exception, so that two bounds measure
            how many dB a byte is worth.
        fast: `objective: speed` takes it.
        fills_bound: errors are as large as the bound allows everywhere, so that its PSNR for its
            bytes is low; `objective: quality` does not try it.
        checked: its bytes have checksums of the values that they decode to.
        reference: reports and benchmarks compare ours with it.

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
        """Return the values; `data` has passed a checksum, `error_bound` is that of `encode`."""

    def refusal(self, values: np.ndarray, error_bound: float) -> str:
        """Return why this codec cannot take these values at this bound, "" if it can."""
        shape, (fewest, most) = fold(values.shape, self.dims[1]), self.dims
        if values.dtype.name not in self.dtypes:
            return f"{self.name} needs {' or '.join(self.dtypes)}, got {values.dtype}"
        if len(shape) < fewest or min(shape) < self.min_extent:
            needs = f"{fewest} to {most} dims of at least {self.min_extent}"
            return f"{self.name} needs {needs}, got {shape}"
        return ""

    def factors(self, num_points: int) -> Sequence[float]:
        """Return the multiples of the bound to try on a field: the best result is kept."""
        return (1.0,)

    def size_factors(self, num_points: int) -> Sequence[float]:
        """Return the multiples of the bound to try where the smallest stream is wanted."""
        return self.factors(num_points)

    def version(self) -> str:
        """Return the version of the library, kept in the header of a stream."""
        if not self.requires:
            return "1"
        try:
            return version(self.requires[0])
        except PackageNotFoundError:
            raise missing_extra(self.requires[0], "compression", f"codec {self.name}") from None

    def code(self, values: np.ndarray, error_bound: float, factor: float = 1.0) -> CodedField:
        """Return a field coded within `factor` bounds, decoded again, and its header."""
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
        """Return the values that `code` coded.

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
    """A codec whose bytes have checksums of parts, each of which can be decoded alone."""

    checked: ClassVar[bool] = True

    @abstractmethod
    def restore_window(
        self, header: dict[str, Any], data: memoryview, shape: Shape, dtype: np.dtype,
        bound: float, window: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
    ) -> np.ndarray:  # fmt: skip
        """Return a part of the values.

        Args:
            header: as `code` returned it.
            data: the coded field, not verified.
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


def fold(shape: Shape, max_dims: int) -> Shape:
    """Return the shape without unit dims, its leading dims multiplied into at most `max_dims`.

    Example:
        >>> fold((2, 3, 1, 4, 5), 3), fold((1, 1), 3)
        ((6, 4, 5), (1,))
    """
    kept = [n for n in shape if n != 1] or [1]
    split = max(len(kept) - max_dims, 0)
    return (math.prod(kept[: split + 1]), *kept[split + 1 :])


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

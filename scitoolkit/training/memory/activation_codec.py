"""Fast lossy codec of activations in compiled C, with exact zeros.

The bound applies to the 2-norm error of each 8 x 8 block, which determines the gradient error, and
not to single values: with `step` s no coefficient of a block is off by more than 0.6 s, so the root
mean square error of a block is at most 0.6 s (typically 0.1 s to 0.2 s for smooth fields). Zeros
stay zero and nonzero values stay nonzero, and positive if no value is negative, so that the mask of
a ReLU is exact. Results do not depend on the number of threads.

Source: Jin et al. 2021, arXiv:2111.09562 (COMET: why activations bear an error); Evans et al.
2020, doi:10.1109/ISCA45697.2020.00075 (JPEG-ACT: the cosine transform of activations).
"""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.ops.codegen import REAL, empty, load_library

SIDE = 8
MAX_PARTS = 64
# Coefficients are rounded in float32 and must stay below 2^22 steps.
MAX_STEPS = 1 << 19
# Largest overhead of padding to whole blocks; otherwise values are grouped into blocks of 64.
MAX_PADDING = 1.3


@dataclass(frozen=True)
class Packed:
    """An encoded tensor.

    Attributes:
        data: bytes of all parts, uint8.
        sizes: bytes of each part.
        planes: (planes, height, width) as which the values were encoded.
        shape, dtype: shape and dtype of the original tensor.
        step: quantisation step.
        has_zeros, positive: whether there are exact zeros, and no negative values.
    """

    data: Tensor
    sizes: tuple[int, ...]
    planes: tuple[int, int, int]
    shape: torch.Size
    dtype: torch.dtype
    step: float
    has_zeros: bool
    positive: bool

    @property
    def num_bytes(self) -> int:
        """Bytes of the encoded values."""
        return self.data.numel()


@dataclass(frozen=True)
class TensorStatistics:
    """Root mean square, minimum, largest absolute value and number of zeros of a tensor."""

    rms: float
    least: float
    largest: float
    zeros: int


def measure(x: Tensor) -> TensorStatistics:
    """Return statistics for the choice of a step; `rms` is not finite if a value is not.

    Args:
        x: contiguous float32 or float64 tensor on the CPU.
    """
    statistics = (ctypes.c_double * 4)()
    _library(x.dtype).comet_measure(_pointer(x), ctypes.c_int64(x.numel()), statistics)
    total, least, largest, zeros = statistics
    return TensorStatistics(math.sqrt(total / max(x.numel(), 1)), least, largest, int(zeros))


def pack(x: Tensor, step: float, about: TensorStatistics | None = None) -> Packed | None:
    """Encode a tensor; return None if that saves less than a quarter of its bytes.

    Args:
        x: contiguous float32 or float64 tensor on the CPU, finite, not empty.
        step: quantisation step in the units of `x`, > 0; raised if values over it exceed the range
            of the encoder.
        about: result of `measure(x)`, if known.

    Example:
        >>> x = torch.sin(torch.linspace(0, 9, 64 * 64)).reshape(1, 1, 64, 64).relu()
        >>> y = unpack(pack(x, 0.05))
        >>> bool(((x == 0) == (y == 0)).all()), float((x - y).square().mean().sqrt()) < 0.03
        (True, True)
    """
    about = about or measure(x)
    step = max(step, SIDE * about.largest / MAX_STEPS, torch.finfo(torch.float32).tiny * 256)
    planes = planes_of(x.shape)
    parts = max(1, min(torch.get_num_threads(), planes[0], MAX_PARTS))
    most = x.numel() * x.element_size() * 3 // 4
    room = most // parts + 2048
    scratch = _scratch(parts * room)
    sizes = (ctypes.c_int64 * parts)()
    _library(x.dtype).comet_pack(
        _pointer(x),
        *map(ctypes.c_int64, planes),
        ctypes.c_double(step),
        ctypes.c_int64(about.zeros > 0),
        ctypes.c_int64(parts),
        _pointer(scratch),
        ctypes.c_int64(room),
        sizes,
    )
    if min(sizes) < 0 or sum(sizes) > most:
        return None
    streams = [scratch[i * room : i * room + size] for i, size in enumerate(sizes)]
    data = streams[0].clone() if parts == 1 else torch.cat(streams)
    return Packed(
        data, tuple(sizes), planes, x.shape, x.dtype, step, about.zeros > 0, about.least >= 0
    )


def unpack(packed: Packed) -> Tensor:
    """Decode to a new contiguous tensor, with each block within its error bound."""
    x = empty(tuple(packed.shape), packed.data, packed.dtype)
    parts = len(packed.sizes)
    _library(x.dtype).comet_unpack(
        _pointer(packed.data),
        (ctypes.c_int64 * parts)(*packed.sizes),
        *map(ctypes.c_int64, packed.planes),
        ctypes.c_double(packed.step),
        ctypes.c_int64(packed.has_zeros),
        ctypes.c_int64(packed.positive),
        ctypes.c_int64(parts),
        _pointer(x),
    )
    return x


def planes_of(shape: torch.Size) -> tuple[int, int, int]:
    """Return (planes, height, width) to encode as; blocks cover spatial neighbours if possible."""
    count = math.prod(shape)
    height, width = (1, *shape)[-2:]
    padded = -(-height // SIDE) * SIDE * -(-width // SIDE) * SIDE
    if padded <= MAX_PADDING * height * width:
        return count // (height * width), height, width
    # Blocks of 64 consecutive values: no vertical neighbours, but no padding.
    whole = SIDE * SIDE
    if count % whole == 0:
        return count // whole, SIDE, SIDE
    return (1, count // SIDE, SIDE) if count % SIDE == 0 else (1, 1, count)


_SCRATCH: dict[str, Tensor] = {}


def _scratch(size: int) -> Tensor:
    """Return reusable memory; only pages that are written get allocated."""
    buffer = _SCRATCH.get("cpu")
    if buffer is None or buffer.numel() < size:
        buffer = _SCRATCH["cpu"] = torch.empty(size, dtype=torch.uint8)
    return buffer


@functools.cache
def _compiled(real: str) -> ctypes.CDLL:
    source = importlib.resources.files(__package__).joinpath("activation_codec.c").read_text()
    library = load_library(f"#define REAL {real}\n{source}")
    for name in ("comet_measure", "comet_pack", "comet_unpack"):
        getattr(library, name).restype = None
    return library


def _library(dtype: torch.dtype) -> ctypes.CDLL:
    return _compiled(REAL[dtype])


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())

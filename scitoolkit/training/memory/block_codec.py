"""Lossy codec of activations for GPUs: bit planes of blocks of 8 x 8, each coded on its own.

Bound and statistics are those of `activation_codec`: no coefficient of a block's cosine transform
is off by more than 0.6 steps, zeros stay zero, nonzero values stay nonzero, and positive if no
value is negative. Where that codec has adaptive codes, which are sequential, this one has fields of
a fixed length per block: a block without nonzero values takes no byte but its size, others

    head (1 byte): bit 0 a mask follows, bits 1-2 bytes of the mean, bits 3-6 number of groups
    half a byte per group: number of its bit planes, an index into WIDTHS
    the mean (0 to 3 bytes), and 8 bytes of the mask if some but not all values are zero
    bit planes of 8 coefficients, one byte each, group by group in zigzag order

where the last groups with nonzero coefficients end the block. Signs are folded into the lowest bit.
Blocks are written to slots of the greatest size and then moved together. Nothing waits for the
device until the memory of the encoded tensor is allocated, for which the host must know its size.

Source: Huang et al. 2023, doi:10.1145/3581784.3607048 (cuSZp: fixed-length bit planes per block).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import check_triton
from scitoolkit.training.memory import block_kernels as kernels
from scitoolkit.training.memory.activation_codec import MAX_STEPS, SIDE, planes_of

WIDTHS = (*range(13), 14, 17, 21)
"""Numbers of bit planes of a group; the greatest holds MAX_STEPS with a sign."""
GROUPS, SLOT = 8, 184  # groups of a block, and bytes of the largest block
DEAD = 0.6  # coefficients below this fraction of a step are dropped
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class PackedBlocks:
    """An encoded tensor.

    Attributes:
        data: bytes of all blocks, uint8.
        sizes: bytes of each block, uint8.
        numbers: the quantisation step, and 1 if no value is negative, float32.
        planes: (planes, height, width) as which the values were encoded.
        shape, dtype: shape and dtype of the original tensor.
    """

    data: Tensor
    sizes: Tensor
    numbers: Tensor
    planes: tuple[int, int, int]
    shape: torch.Size
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Bytes stored."""
        return self.data.nbytes + self.sizes.nbytes + self.numbers.nbytes


class Encoding:
    """A tensor that the device is encoding, whose encoded size the host does not know yet.

    Args:
        x: contiguous tensor with a dtype in DTYPES.
        relative: quantisation step relative to the root mean square of `x`, > 0.

    Example:
        >>> x = torch.sin(torch.linspace(0, 9, 64 * 64)).reshape(1, 1, 64, 64).relu()
        >>> blocks = Encoding(x, 0.1).finish()
        >>> y = decode(blocks)
        >>> bool(((x == 0) == (y == 0)).all()), float((x - y).square().mean().sqrt()) < 0.03
        (True, True)
        >>> x.nbytes > 8 * blocks.num_bytes
        True
    """

    def __init__(self, x: Tensor, relative: float) -> None:
        self._shape, self._dtype, self._most = x.shape, x.dtype, x.nbytes * 3 // 4
        self._planes = planes_of(x.shape)
        # Squares of float64 values that float32 does not hold are infinite, as on the CPU.
        precise = torch.float64 if x.dtype == torch.float64 else torch.float32
        norm, (low, high) = torch.linalg.vector_norm(x, dtype=precise), torch.aminmax(x)
        encode = kernels.encode if has_kernels(x) else _encode
        factor = relative / math.sqrt(x.numel())
        self._numbers, self._slots, self._sizes = encode(
            x, self._planes, (norm, low, high), factor, matrix(x.device)
        )
        about = torch.stack([self._sizes.sum(dtype=torch.float64), norm.double()])
        self._event: torch.cuda.Event | None = None
        self._about = about
        if x.is_cuda:
            self._about = torch.empty(2, dtype=torch.float64, pin_memory=True)
            self._about.copy_(about, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(x.device))

    def finish(self) -> PackedBlocks | None:
        """Return the encoded tensor; None if it has not finite values or is hardly smaller.

        The host waits until the tensor is encoded, but not for work that was queued since.
        """
        if self._event is not None:
            self._event.synchronize()
        total, norm = self._about.tolist()
        finite = norm <= torch.finfo(torch.float32).max  # False for NaN
        if not finite or total + self._sizes.nbytes > self._most:
            return None
        data = torch.empty(int(total), dtype=torch.uint8, device=self._sizes.device)
        starts = _starts(self._sizes)
        move = kernels.move if has_kernels(data) else _move
        move(self._slots, self._sizes, starts, data)
        return PackedBlocks(
            data, self._sizes, self._numbers, self._planes, self._shape, self._dtype
        )


def decode(blocks: PackedBlocks) -> Tensor:
    """Decode to a new contiguous tensor, with each block within its error bound."""
    y = torch.empty(blocks.shape, dtype=blocks.dtype, device=blocks.data.device)
    run = kernels.decode if has_kernels(y) else _decode
    # In float16, nonzero values would otherwise become zero, and great ones infinite.
    half, single = torch.finfo(torch.float16), torch.finfo(torch.float32)
    bounds = single.tiny, torch.finfo(torch.bfloat16).max
    if blocks.dtype == torch.float16:
        bounds = half.tiny * half.eps, half.max
    starts = _starts(blocks.sizes)
    coded = blocks.data, blocks.sizes, starts, blocks.numbers
    run(*coded, blocks.planes, bounds, matrix(y.device), y)
    return y


def has_kernels(x: Tensor) -> bool:
    """Return whether the codec of a tensor runs in Triton, and not in torch."""
    return _runs_triton(x.device.type)


@functools.cache
def _runs_triton(device: str) -> bool:
    try:
        check_triton(device)
    except BackendError:
        return False
    return True


@functools.cache
def matrix(device: torch.device) -> Tensor:
    """Return the orthonormal cosine transform of 8 x 8 values to coefficients in zigzag order.

    Returns:
        Shape (64, 64), float32; row i has the weights of value i in every coefficient.
    """
    k, n = torch.arange(SIDE, dtype=torch.float64)[:, None], torch.arange(SIDE)
    cosine = 0.5 * torch.cos(math.pi * (2 * n + 1) * k / 16)
    cosine[0] = math.sqrt(0.125)
    both = torch.kron(cosine, cosine)
    return both[_zigzag()].T.float().contiguous().to(device)


def _zigzag() -> list[int]:
    """Return the row-major positions of a block by rising frequency."""
    places = [(r, c) for r in range(SIDE) for c in range(SIDE)]
    places.sort(key=lambda at: (sum(at), at[0] if sum(at) % 2 else at[1]))
    return [SIDE * r + c for r, c in places]


def _starts(sizes: Tensor) -> Tensor:
    """Return the first byte of each block, int64."""
    return sizes.cumsum(0, dtype=torch.int64) - sizes


# --- the same in torch, where there is no Triton --------------------------------------------------


def _encode(
    x: Tensor,
    planes: tuple[int, int, int],
    about: tuple[Tensor, Tensor, Tensor],
    factor: float,
    matrix: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return step and sign, a slot of SLOT bytes for each block, and the bytes used of each."""
    norm, low, high = (number.float() for number in about)
    largest = torch.maximum(-low, high)
    step = torch.maximum(norm * factor, largest * (SIDE / MAX_STEPS)).clamp(min=256 * 2.0**-126)
    values = _blocks(x, planes).float()
    t = _product(values, matrix) / step
    q = (t + 0.5).floor().clamp(-2 * MAX_STEPS, 2 * MAX_STEPS)
    q[:, 1:] = torch.where(t[:, 1:].abs() > DEAD, q[:, 1:], 0)
    q = q.to(torch.int32)
    folded = torch.where(q < 0, -2 * q - 1, 2 * q)
    mean = folded[:, 0].clone()
    folded[:, 0] = 0
    groups = folded.view(-1, GROUPS, 8)
    largest_of = groups.amax(2)
    code = sum((largest_of >= 2**width).int() for width in WIDTHS[:-1])
    assert isinstance(code, Tensor)
    width = torch.tensor(WIDTHS, device=x.device)[code]
    lane = torch.arange(8, device=x.device)
    count = ((code > 0) * (lane + 1)).amax(1)
    nonzero = values != 0
    mixed = nonzero.any(1) & ~nonzero.all(1)
    mean_bytes = sum((mean >= limit).int() for limit in (1, 1 << 8, 1 << 16))
    assert isinstance(mean_bytes, Tensor)
    half = (count + 1) // 2
    # One column more, for what is not stored.
    slots = torch.zeros(len(values), SLOT + 1, dtype=torch.uint8, device=x.device)

    def put(at: Tensor, value: Tensor, stored: Tensor) -> None:
        slots.scatter_(1, torch.where(stored, at, SLOT).long(), value.to(torch.uint8))

    slots[:, 0] = mixed + 2 * mean_bytes + 8 * count
    put(1 + lane[None, :4], code[:, ::2] + 16 * code[:, 1::2], lane[:4] < half[:, None])
    at = 1 + half[:, None]
    put(at + lane[:3], mean[:, None] >> (8 * lane[:3]) & 255, lane[:3] < mean_bytes[:, None])
    at = at + mean_bytes[:, None]
    bits = (nonzero.view(-1, 8, 8).int() << lane).sum(2)
    put(at + lane, bits, mixed[:, None])
    at = at + 8 * mixed[:, None] + width.cumsum(1) - width
    for plane in range(WIDTHS[-1]):
        put(at + plane, ((groups >> plane & 1) << lane).sum(2), plane < width)
    sizes = 1 + half + mean_bytes + 8 * mixed + width.sum(1)
    sizes = torch.where(nonzero.any(1), sizes, 0).to(torch.uint8)
    return torch.stack([step, (low >= 0).float()]), slots[:, :SLOT], sizes


def _move(slots: Tensor, sizes: Tensor, starts: Tensor, data: Tensor) -> None:
    data.copy_(slots[torch.arange(SLOT, device=slots.device) < sizes[:, None]])


def _decode(
    data: Tensor,
    sizes: Tensor,
    starts: Tensor,
    numbers: Tensor,
    planes: tuple[int, int, int],
    bounds: tuple[float, float],
    matrix: Tensor,
    y: Tensor,
) -> None:
    lane = torch.arange(8, device=y.device)
    data = torch.cat([data, data.new_zeros(1)])

    def get(at: Tensor, stored: Tensor) -> Tensor:
        return data[torch.where(stored, at, len(data) - 1)].int()

    live = sizes > 0
    head = get(starts, live)
    mixed, mean_bytes, count = head & 1, head >> 1 & 3, head >> 3
    inside = lane < count[:, None]
    code = get(starts[:, None] + 1 + lane // 2, inside) >> (4 * (lane % 2)) & 15
    width = torch.tensor(WIDTHS, device=y.device)[torch.where(inside, code, 0)]
    at = (starts + 1 + (count + 1) // 2)[:, None]
    parts = get(at + lane[:3], lane[:3] < mean_bytes[:, None])
    mean = (parts << (8 * lane[:3])).sum(1)
    at = at + mean_bytes[:, None]
    mask = get(at + lane, mixed[:, None] > 0)
    nonzero = (mask[:, :, None] >> lane & 1).view(-1, 64) > 0
    nonzero = torch.where(mixed[:, None] > 0, nonzero, live[:, None])
    at = at + 8 * mixed[:, None] + width.cumsum(1) - width
    groups = torch.zeros(len(sizes), GROUPS, 8, dtype=torch.int32, device=y.device)
    for plane in range(WIDTHS[-1]):
        groups |= (get(at + plane, plane < width)[:, :, None] >> lane & 1).int() << plane
    folded = groups.view(-1, 64)
    folded[:, 0] = mean
    q = torch.where(folded & 1 > 0, -((folded + 1) >> 1), folded >> 1)
    step, positive = numbers[0], numbers[1] > 0
    values = _product(q.float() * step, matrix.T)
    least = (0.125 * step).clamp(min=bounds[0])
    small = positive & (values < least) | (values.abs() < bounds[0])
    signed = torch.where(positive | (values >= 0), least, -least)
    values = torch.where(small, signed, values).clamp(-bounds[1], bounds[1])
    _write_blocks(torch.where(nonzero, values, 0), planes, y)


def _product(values: Tensor, matrix: Tensor) -> Tensor:
    """Return the product of (N, 64) and (64, 64), never in TF32, whose error is above the bound."""
    out = values[:, :1] * matrix[0]
    for k in range(1, SIDE * SIDE):
        out.addcmul_(values[:, k : k + 1], matrix[k])
    return out


def _blocks(x: Tensor, planes: tuple[int, int, int]) -> Tensor:
    """Return the values of each block, row by row; beyond an edge those at the edge."""
    count, height, width = planes
    rows, columns = (
        torch.arange(-(-n // SIDE) * SIDE, device=x.device).clamp(max=n - 1)
        for n in (height, width)
    )
    whole = x.reshape(planes)[:, rows][:, :, columns]
    parts = whole.view(count, len(rows) // SIDE, SIDE, len(columns) // SIDE, SIDE)
    return parts.transpose(2, 3).reshape(-1, SIDE * SIDE)


def _write_blocks(values: Tensor, planes: tuple[int, int, int], y: Tensor) -> None:
    count, height, width = planes
    down, across = -(-height // SIDE), -(-width // SIDE)
    whole = values.view(count, down, across, SIDE, SIDE).transpose(2, 3)
    whole = whole.reshape(count, down * SIDE, across * SIDE)[:, :height, :width]
    y.view(planes).copy_(whole)

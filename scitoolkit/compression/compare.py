"""Baselines: the highest PSNR of third-party codecs within a byte budget.

The size of a codec's stream is not monotone in the bound, because codecs switch between
algorithms, and bisection alone may miss the optimum by more than a dB. The bound is therefore
bracketed first and then scanned on a fine grid.
"""

from __future__ import annotations

import math

import numpy as np

from scitoolkit.compression.bounds import psnr
from scitoolkit.compression.codecs import ErrorBoundedCodec, codecs
from scitoolkit.compression.compress import filled
from scitoolkit.compression.decoding import times_power
from scitoolkit.compression.field import exponent_of
from scitoolkit.compression.mask import special_values
from scitoolkit.compression.missing import MissingValues
from scitoolkit.core.errors import BackendError

GRID = 24
# Half-width of the scan around the result of the bisection, as a factor of the bound.
SPAN = 1.35


def plain_codecs() -> tuple[dict[str, ErrorBoundedCodec], dict[str, str]]:
    """Return the third-party baseline codecs, and the reason for each that is not available.

    Example:
        >>> found, not_run = plain_codecs()
        >>> "dyadic" in found
        False
    """
    members = {name: codecs.get(name) for name in codecs}
    members = {name: member for name, member in members.items() if member.reference}
    not_run = {name: why for name, member in members.items() if (why := member.unavailable())}
    return {name: m() for name, m in members.items() if name not in not_run}, not_run


def codecs_at_size(
    values: np.ndarray, budget: int, *, grid: int = GRID, missing: MissingValues | None = None
) -> dict[str, float]:
    """Return the best PSNR (dB) of each baseline codec within `budget` bytes; -inf if none fits.

    Args:
        values: float32 or float64 field; special values are filled before coding, and their
            storage is not counted.
        budget: bytes.
        grid: number of bounds scanned around the one that just fits.
        missing: the missing values of the field.

    Returns:
        PSNR by name of each installed codec of `plain_codecs`.
    """
    special = special_values(values, missing or MissingValues())
    field = filled(np.ascontiguousarray(values, values.dtype.newbyteorder("=")), special)
    return {
        name: best_within(codec, field, budget, grid) for name, codec in plain_codecs()[0].items()
    }


def decoded_at_size(
    values: np.ndarray, budget: int, name: str, *, missing: MissingValues | None = None
) -> np.ndarray:
    """Return what a baseline codec decodes at its best bound within `budget` bytes.

    Raises:
        BackendError: the codec cannot encode the field within the budget.
    """
    special = special_values(values, missing or MissingValues())
    field = filled(np.ascontiguousarray(values, values.dtype.newbyteorder("=")), special)
    codec = plain_codecs()[0][name]
    _, bound = best_bound(codec, field, budget)
    if not bound:
        raise BackendError(f"{name} does not encode this field within {budget} bytes")
    return codec.decode(codec.encode(field, bound), field.shape, field.dtype, bound)


def best_within(
    codec: ErrorBoundedCodec, field: np.ndarray, budget: int, grid: int = GRID
) -> float:
    """Return the best PSNR (dB) of one codec within `budget` bytes over a fine grid of bounds."""
    return best_bound(codec, field, budget, grid)[0]


def best_bound(
    codec: ErrorBoundedCodec, field: np.ndarray, budget: int, grid: int = GRID
) -> tuple[float, float]:
    """Return the best PSNR (dB) of one codec within `budget` bytes, and its bound; -inf and 0."""
    extent = float(field.max()) - float(field.min())
    if not 0 < extent < math.inf:
        return -math.inf, 0.0
    exponent = exponent_of(extent)  # PSNR does not depend on it
    field, extent = times_power(field, exponent), math.ldexp(extent, exponent)
    if codec.refusal(field, 0.5 * extent):
        return -math.inf, 0.0
    try:
        low, high = 1e-7 * extent, 0.5 * extent
        for _ in range(10):
            middle = math.sqrt(low * high)
            if not codec.refusal(field, middle) and len(codec.encode(field, middle)) <= budget:
                high = middle
            else:
                low = middle
        bounds = np.geomspace(high / SPAN, high * SPAN, grid)
        tried = [(measure(codec, field, float(b), budget), float(b)) for b in [*bounds, high]]
        quality, bound = max(tried, key=lambda pair: pair[0])
        return quality, math.ldexp(bound, -exponent) if quality > -math.inf else 0.0
    except BackendError:
        return -math.inf, 0.0


def measure(
    codec: ErrorBoundedCodec, field: np.ndarray, bound: float, budget: float = math.inf
) -> float:
    """Return the PSNR (dB) of a codec at a bound; -inf if its stream exceeds the budget."""
    data = b"" if codec.refusal(field, bound) else codec.encode(field, bound)
    if not data or len(data) > budget:
        return -math.inf
    return psnr(field, codec.decode(data, field.shape, field.dtype, bound))


def rate_and_psnr(codec: ErrorBoundedCodec, field: np.ndarray, bound: float) -> tuple[float, float]:
    """Return bits per value and PSNR (dB) of a codec at a bound; (inf, -inf) if it cannot run."""
    try:
        data = b"" if codec.refusal(field, bound) else codec.encode(field, bound)
        if not data:
            return math.inf, -math.inf
        decoded = codec.decode(data, field.shape, field.dtype, bound)
    except BackendError:
        return math.inf, -math.inf
    return 8 * len(data) / field.size, psnr(field, decoded)

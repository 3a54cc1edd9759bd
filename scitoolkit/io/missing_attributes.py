"""Missing values and valid ranges that the attributes of a variable declare.

The one reading of these attributes, for campaigns, opened datasets and compression. Source: NetCDF
Users Guide, "Attribute Conventions"; CF Conventions 1.12, section 2.5.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from scitoolkit.core.log import get_logger

log = get_logger(__name__)
FILLS = ("_FillValue", "missing_value")
LIMITS = ("valid_min", "valid_max", "valid_range")
# Relative: limits of float32 values are often written in float64, and the reverse.
_ROUNDING = 1e-6


def missing_numbers(attributes: Mapping[str, Any], dtype: np.dtype) -> tuple[float, ...]:
    """Return the finite numbers that mark missing values; text is parsed.

    A float32 attribute of float64 values also gives the float64 of its decimals: -999.9 in the
    values may be declared as float32.

    Example:
        >>> missing_numbers({"missing_value": "-999."}, np.dtype("f4"))
        (-999.0,)
    """
    numbers: list[float] = []
    for key in FILLS:
        stated = _array(key, attributes)
        # Beyond 2^53, float64 does not tell the fill values of 64-bit integers from others.
        large = stated.dtype.kind in "iu" and (abs(stated.astype("f8")) > 2**53).any()
        numbers += [int(n) if large else float(n) for n in stated]
        if stated.dtype.kind == "f" and dtype.kind == "f" and dtype.itemsize == 8:
            # Headers hold the numbers of a float32 attribute in float64.
            with np.errstate(over="ignore"):
                numbers += [float(str(n)) for n in stated.astype("f4") if float(n) in numbers]
    return tuple(dict.fromkeys(n for n in numbers if math.isfinite(n)))


def valid_limits(attributes: Mapping[str, Any]) -> tuple[float, float]:
    """Return the smallest and the largest valid value as stated, infinite where there is none.

    Example:
        >>> valid_limits({"valid_range": [0, 40], "valid_max": 30})
        (0.0, 30.0)
    """
    low, high, both = (_array(key, attributes) for key in LIMITS)
    lows, highs = [*low[:1]], [*high[:1]]
    if len(both) == 2:
        lows, highs = [*lows, both[0]], [*highs, both[1]]
    finite = [[float(n) for n in side if math.isfinite(n)] for side in (lows, highs)]
    return max(finite[0], default=-math.inf), min(finite[1], default=math.inf)


def stored_limits(
    attributes: Mapping[str, Any], dtype: np.dtype, scale: float | None, offset: float
) -> tuple[float, float]:
    """Return the limits of valid values as they are stored, widened by rounding.

    Limits of packed integers are packed as well, unless they are floats.

    Args:
        attributes: of the variable.
        dtype: of the stored values, as `_Unsigned` has them.
        scale: factor; None for values that are not packed.
        offset: added after scaling.

    Example:
        >>> stored_limits({"valid_min": -5}, np.dtype("i2"), 0.1, 0.0)
        (-5.0, inf)
    """
    low, high = valid_limits(attributes)
    if dtype.kind == "u":  # signed attributes of unsigned values
        above = 2.0 ** (8 * dtype.itemsize)
        low, high = (n + above if -math.inf < n < 0 else n for n in (low, high))
    floats = any(_array(key, attributes).dtype.kind == "f" for key in LIMITS)
    if scale and floats and dtype.kind in "iu":
        low, high = sorted(((low - offset) / scale, (high - offset) / scale))
    low, high = low - _ROUNDING * abs(low), high + _ROUNDING * abs(high)
    whole = dtype.kind in "iu"
    return (
        float(math.ceil(low)) if whole and math.isfinite(low) else low,
        float(math.floor(high)) if whole and math.isfinite(high) else high,
    )


def number_of(attributes: Mapping[str, Any], key: str, default: float) -> float:
    """Return the number of an attribute, also of text.

    Example:
        >>> number_of({"scale_factor": "0.1"}, "scale_factor", 1.0)
        0.1
    """
    stated = _array(key, attributes)
    return float(stated[0]) if len(stated) else default


def _array(key: str, attributes: Mapping[str, Any]) -> np.ndarray:
    """Return the numbers of an attribute, (n,); none without it, or for text that has none."""
    value = attributes.get(key)
    numbers = np.asarray([] if value is None else value).reshape(-1)
    if numbers.dtype.kind in "fiu":
        return numbers if value is not None else np.empty(0, np.int64)
    listed = numbers.tolist()
    texts = [n.decode(errors="replace") if isinstance(n, bytes) else str(n) for n in listed]
    words = [word.strip(",fF") for text in texts for word in text.split()]
    try:
        return np.array([float(word) for word in words])
    except ValueError:
        log.warning("attribute %s=%r is not a number and is ignored", key, value)
        return np.empty(0, np.int64)

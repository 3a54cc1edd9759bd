"""Missing values: declared by attributes, HDF5's or netCDF's fill values, or by the user.

Compression and verification share this class, so that both follow the same conventions. Missing
values are excluded from the range and restored bit for bit, and no valid value decodes to one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.io.missing_attributes import FILLS, LIMITS, missing_numbers, valid_limits

# NC_FILL_FLOAT and NC_FILL_DOUBLE of netcdf.h.
NETCDF_FILL = 9.969209968386869e36


@dataclass(frozen=True)
class MissingValues:
    """Set of missing values: single values, and everything outside a valid range.

    Args:
        values: finite numbers that mark missing data, compared in the dtype of the array.
        valid_min: smallest valid value.
        valid_max: largest valid value.

    Example:
        >>> MissingValues((-999.0,), valid_max=100.0).where(np.array([1.0, -999.0, 101.0, np.nan]))
        array([False,  True,  True,  True])
    """

    values: tuple[float, ...] = ()
    valid_min: float = -math.inf
    valid_max: float = math.inf

    @classmethod
    def of(cls, values: MissingValues | float | Iterable[float] | None) -> MissingValues:
        """Return missing values from the argument of `compress`: none, one or several numbers.

        Raises:
            ConfigError: not numbers.

        Example:
            >>> MissingValues.of([1e20, float("nan"), -999]).values
            (1e+20, -999.0)
        """
        if isinstance(values, MissingValues):
            return values
        try:
            numbers = np.atleast_1d(np.asarray([] if values is None else values, np.float64))
        except (TypeError, ValueError):
            raise ConfigError(f"missing values {values!r}", allowed="numbers") from None
        return cls(_finite(numbers))

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> MissingValues:
        """Return the missing values listed in the header of a stream."""
        missing = cls.of(header.get("fill"))
        low, high = header.get("valid", (None, None))
        return cls(
            missing.values, -math.inf if low is None else low, math.inf if high is None else high
        )

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any], dtype: np.dtype) -> MissingValues:
        """Return the missing values declared by CF and netCDF attributes.

        Args:
            attributes: `_FillValue`, `missing_value` (also several), `valid_min`, `valid_max`,
                `valid_range`; text is parsed as numbers.
            dtype: of the array that the attributes describe.
        """
        return cls(missing_numbers(attributes, dtype), *valid_limits(attributes))

    @classmethod
    def of_dataset(cls, item: h5py.Dataset) -> MissingValues:
        """Return the missing values of a dataset: its attributes, its fill value, netCDF's fill.

        A fill value of 0 in the storage properties is HDF5's default, not a missing value.
        """
        missing = cls.from_attributes(_attributes(item), item.dtype) | cls((NETCDF_FILL,))
        stored = item.id.get_create_plist().fill_value_defined()
        if stored == h5py.h5d.FILL_VALUE_USER_DEFINED and item.fillvalue:
            missing |= cls.of(float(item.fillvalue))
        return missing

    def __or__(self, other: MissingValues) -> MissingValues:
        """Return the union: values that are missing according to either."""
        values = tuple(dict.fromkeys((*self.values, *other.values)))
        low, high = max(self.valid_min, other.valid_min), min(self.valid_max, other.valid_max)
        return MissingValues(values, low, high)

    def where(self, values: np.ndarray) -> np.ndarray:
        """Return True where values of a float array are missing or not finite."""
        mask = ~np.isfinite(values)
        for value in self.in_dtype(values.dtype):
            mask |= values == value
        if math.isfinite(self.valid_min):
            mask |= values < np.float64(self.valid_min)
        if math.isfinite(self.valid_max):
            mask |= values > np.float64(self.valid_max)
        return mask

    def in_dtype(self, dtype: np.dtype) -> list[np.floating]:
        """Return the values that are finite in a dtype, in that dtype."""
        with np.errstate(over="ignore"):
            rounded = [dtype.type(value) for value in self.values]
        return [value for value in rounded if np.isfinite(value)]

    def clip(self, values: np.ndarray) -> np.ndarray:
        """Return decoded values clipped to the valid range of their originals."""
        if not self.limited:
            return values
        low = _inside(self.valid_min, values.dtype, upward=True)
        high = _inside(self.valid_max, values.dtype, upward=False)
        return np.clip(values, low, high) if low <= high else values

    def restricted_to(self, values: np.ndarray) -> MissingValues:
        """Return the missing values that occur in an array, with the valid range."""
        low, high = self.valid_min, self.valid_max
        return MissingValues(
            tuple(v for v in self.values if MissingValues((v,)).occurs_in(values)), low, high
        )

    @property
    def limited(self) -> bool:
        """Whether there is a valid minimum or maximum."""
        return math.isfinite(self.valid_min) or math.isfinite(self.valid_max)

    def occurs_in(self, values: np.ndarray) -> bool:
        """Return whether one of the single values occurs in an array."""
        return any(bool((values == value).any()) for value in self.in_dtype(values.dtype))

    def header(self) -> dict[str, Any]:
        """Return the entries for the header of a stream."""
        entries: dict[str, Any] = {}
        if self.values:
            entries["fill"] = self.values[0] if len(self.values) == 1 else list(self.values)
        limits = [v if math.isfinite(v) else None for v in (self.valid_min, self.valid_max)]
        if limits != [None, None]:
            entries["valid"] = limits
        return entries


def _finite(numbers: np.ndarray) -> tuple[float, ...]:
    return tuple(dict.fromkeys(float(n) for n in numbers if np.isfinite(n)))


def _inside(limit: float, dtype: np.dtype, *, upward: bool) -> np.floating:
    """Return the number of a dtype nearest to a limit on its valid side."""
    with np.errstate(over="ignore"):
        rounded = dtype.type(limit)
    if float(rounded) >= limit if upward else float(rounded) <= limit:
        return rounded
    return np.nextafter(rounded, dtype.type(math.inf if upward else -math.inf))


def _attributes(item: h5py.Dataset) -> dict[str, Any]:
    """Return the non-empty attributes that declare missing values."""
    attributes = {key: item.attrs[key] for key in (*FILLS, *LIMITS) if key in item.attrs}
    return {key: value for key, value in attributes.items() if not isinstance(value, h5py.Empty)}

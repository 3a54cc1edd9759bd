"""Comparison of unit names across spellings, and parsing of memory sizes."""

from __future__ import annotations

import math
import re

from scitoolkit.core.errors import ConfigError

_SPELLINGS = {
    "degc": ("degc", "°c", "c", "celsius", "degrees_celsius", "degree_c", "degrees_c", "deg_c",
             "degree_celsius", "degreec", "degreesc", "celsius_degrees", "degree celsius",
             "degrees celsius", "deg c"),
    "k": ("k", "kelvin", "kelvins", "degk", "degree_kelvin", "degrees_kelvin", "deg_k"),
    "m/s": ("m/s", "m s-1", "m s^-1", "m s**-1", "meters/second", "meter/second", "ms-1"),
    "m": ("m", "meter", "meters", "metre", "metres"),
    "pa": ("pa", "pascal", "pascals"),
    "hpa": ("hpa", "mbar", "millibar", "millibars", "mb"),
    "1": ("1", "", "dimensionless", "none", "unitless", "-"),
    "%": ("%", "percent"),
    "kg/kg": ("kg/kg", "kg kg-1", "kg kg**-1", "kg kg^-1"),
}  # fmt: skip
_CANONICAL = {spelling: unit for unit, names in _SPELLINGS.items() for spelling in names}


def same_unit(first: str, second: str) -> bool:
    """Return whether two strings are spellings of the same unit.

    Example:
        >>> same_unit("degrees_Celsius", "degC"), same_unit("K", "degC")
        (True, False)
    """
    return canonical_unit(first) == canonical_unit(second)


def canonical_unit(unit: str) -> str:
    """Return the canonical lower-case spelling; unknown units are only stripped and lowered."""
    key = " ".join(unit.strip().lower().split())
    return _CANONICAL.get(key, key)


_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def parse_bytes(size: int | float | str, *, key: str = "max_memory") -> int:
    """Parse a number of bytes, given as a number or as text with a unit.

    Raises:
        ConfigError: the text is not a positive size.

    Example:
        >>> parse_bytes("1GiB"), parse_bytes("2.5 MB"), parse_bytes(4096)
        (1073741824, 2500000, 4096)
    """
    found = re.fullmatch(r"([0-9.eE+]+)\s*([a-zA-Z]*)", str(size).strip())
    try:
        count = float(found[1]) * _BYTES[found[2].lower()] if found else 0.0
    except (KeyError, ValueError):
        count = 0.0
    if not 1 <= count < math.inf:
        raise ConfigError(
            f"{key} {size!r} is not a size",
            allowed="a number of bytes, or text such as '512MiB'",
            fix=f"{key}='1GiB'",
        )
    return int(count)

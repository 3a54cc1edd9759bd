"""Unit names: the spellings of one unit compared, without a unit library's weight."""

from __future__ import annotations

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
    """Return whether two unit strings spell the same unit.

    Example:
        >>> same_unit("degrees_Celsius", "degC"), same_unit("K", "degC")
        (True, False)
    """
    return canonical_unit(first) == canonical_unit(second)


def canonical_unit(unit: str) -> str:
    """Return one lower-case spelling for a unit; unknown units are only stripped and lowered."""
    key = " ".join(unit.strip().lower().split())
    return _CANONICAL.get(key, key)

"""Comparison of unit names across spellings, and parsing of memory sizes."""

from __future__ import annotations

import math
import re

from scitoolkit.core.errors import ConfigError

_SPELLINGS = {
    "degc": (
        "degc",
        "°c",
        "c",
        "celsius",
        "degrees_celsius",
        "degree_c",
        "degrees_c",
        "deg_c",
        "degree_celsius",
        "degreec",
        "degreesc",
        "celsius_degrees",
        "degree celsius",
        "degrees celsius",
        "deg c",
    ),
    "k": ("k", "kelvin", "kelvins", "degk", "degree_kelvin", "degrees_kelvin", "deg_k"),
    "m/s": ("m/s", "ms-1"),
    "m": ("m", "meter", "meters", "metre", "metres"),
    "pa": ("pa", "pascal", "pascals"),
    "hpa": ("hpa", "mbar", "millibar", "millibars", "mb"),
    "1": ("1", "", "dimensionless", "none", "unitless", "-"),
    "%": ("%", "percent"),
    "kg/kg": ("kg/kg",),
    "s": ("s", "sec", "second", "seconds"),
}
_CANONICAL = {spelling: unit for unit, names in _SPELLINGS.items() for spelling in names}


def same_unit(first: str, second: str) -> bool:
    """Return whether two strings are spellings of the same unit.

    Example:
        >>> same_unit("degrees_Celsius", "degC"), same_unit("K", "degC")
        (True, False)
        >>> same_unit("kg m^-3", "kg/m3"), same_unit("W m-2", "W m-1")
        (True, False)
    """
    return canonical_unit(first) == canonical_unit(second)


def canonical_unit(unit: str) -> str:
    """Return the canonical lower-case spelling of a unit.

    Products and powers become sorted factors with integer exponents. Text of another form is only
    stripped and lowered.

    Example:
        >>> canonical_unit("m s^-1"), canonical_unit("meters/second"), canonical_unit("J/(kg K)")
        ('m/s', 'm/s', 'j/(kg k)')
    """
    key = " ".join(_MEGA.sub("mega", unit.strip()).lower().split())
    return _CANONICAL.get(key) or _product(key) or key


# Lower case would make megapascal of millipascal.
_MEGA = re.compile(r"\bM(?=(?:Pa|W|J|eV|V|Hz|g|N|m|s|T|A)(?![a-z]))")
_FACTOR = re.compile(r"([*/. ]?) ?([a-zµ°%_]+)(?:\*\*|\^)?([+-]?[0-9]+)? ?")


def _product(key: str) -> str:
    """Return a product of powers as "kg m-3", "" if the text is none."""
    powers: dict[str, int] = {}
    place = 0
    while place < len(key):
        factor = _FACTOR.match(key, place)
        if factor is None:
            return ""
        operator, name, power = factor.groups()
        name = _CANONICAL.get(name, name)
        sign = -1 if operator == "/" else 1
        powers[name] = powers.get(name, 0) + sign * int(power or 1)
        place = factor.end()
    text = " ".join(f"{n}{'' if e == 1 else e}" for n, e in sorted(powers.items()) if e)
    return "m/s" if text == "m s-1" else text or "1"


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

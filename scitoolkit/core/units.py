"""Comparison of unit names across spellings, and parsing of memory sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

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
        "centigrade",
    ),
    "k": ("k", "kelvin", "kelvins", "degk", "degree_kelvin", "degrees_kelvin", "deg_k"),
    "m/s": ("m/s", "ms-1"),
    "m": ("m", "meter", "meters", "metre", "metres"),
    "pa": ("pa", "pascal", "pascals"),
    "hpa": ("hpa", "mbar", "millibar", "millibars", "mb"),
    "1": ("1", "", "dimensionless", "none", "unitless", "-", "fraction", "(0 - 1)", "(0-1)", "0-1"),
    "%": ("%", "percent"),
    "kg/kg": ("kg/kg",),
    "s": ("s", "sec", "second", "seconds"),
    "siemens": ("siemens", "mho", "mhos"),
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


def stated_unit(attrs: Mapping[str, Any]) -> str:
    """Return the unit that attributes of a variable state, "" for none.

    Example:
        >>> stated_unit({"Units": "K"}), stated_unit({"unit": "K", "units": "degC"})
        ('K', 'degC')
    """
    near = {key.lower(): key for key in sorted(map(str, attrs))}
    name = "units" if "units" in attrs else near.get("units", near.get("unit"))
    return "" if name is None else str(attrs[name])


def canonical_unit(unit: str) -> str:
    """Return the canonical spelling of a unit: lower case, but for symbols whose case decides.

    Products and powers become sorted factors with integer exponents. Text of another form is only
    stripped and lowered. Symbols of the SI (9th edition of the SI brochure, tables 2, 4 and 7)
    that differ from others by their case alone, such as mS of ms and MPa of mPa, are spelled out.

    Example:
        >>> canonical_unit("m s^-1"), canonical_unit("meters/second"), canonical_unit("J/(kg K)")
        ('m/s', 'm/s', 'j/(kg k)')
        >>> canonical_unit("mS/cm"), canonical_unit("MPa")
        ('cm-1 millisiemens', 'megapa')
    """
    text = _PER.sub("/", unit.translate(_TYPESET)).strip()
    text = text if text in _CAPITALS else _WORD.sub(_cased, text)
    key = " ".join(text.lower().split())
    return _CANONICAL.get(key) or _CANONICAL.get(key.replace(" ", "_")) or _product(key) or key


_TYPESET = str.maketrans(
    {**dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻−·⋅", "0123456789--  ", strict=True)), "℃": "°C", "℉": "°F"}
)
"""Signs of typeset units beside those of a keyboard."""
_PER = re.compile(r"\bper\b", re.IGNORECASE)
_CAPITALS = {"M/S", "M S-1", "M S^-1", "M S**-1", "PA"}
"""Capitals of old archives, which would otherwise be symbols of the SI."""
_WORD = re.compile(r"[A-Za-zµμ]+")
_PREFIXES = {
    **{"Y": "yotta", "Z": "zetta", "E": "exa", "P": "peta", "T": "tera", "G": "giga"},
    **{"M": "mega", "k": "kilo", "h": "hecto", "d": "deci", "c": "centi", "m": "milli"},
    **{"u": "micro", "µ": "micro", "μ": "micro", "n": "nano", "p": "pico", "f": "femto"},
    **{"a": "atto", "z": "zepto", "y": "yocto"},
}
_UPPER_PREFIXES = "YZPM"
"""Prefixes of which the lower case is another one."""
_UPPER = {"S": "siemens", "A": "ampere", "T": "tesla", "H": "henry", "G": "gauss"}
"""Symbols of which the lower case is another unit: second, year, tonne, hour, gram."""
_ALIKE = re.compile(r"Pa|eV|Hz|Wb|[gmsNJWVCFKL]|mol|bar|Gy|Sv|Bq|lm|lx|cd|kat|l|t|a|yr")
_SYMBOL = re.compile(rf"({'|'.join(_PREFIXES)})({_ALIKE.pattern}|[SATHGMD])")

_MEGA = ("MPA", "MEV", "MHZ")
"""Symbols in capitals, of which M is no milli."""
_LOWERED = ("Pa", "MM")
"""Pascal, no 10^15 years; and millimetres in capitals."""


def _cased(word: re.Match[str]) -> str:
    """Return a symbol of the SI whose lower case is another one spelled out, others as written."""
    symbol = word[0]
    if symbol in _MEGA:
        return "mega" + symbol[1:]
    if symbol in _UPPER:
        return _UPPER[symbol]
    parts = None if symbol in _LOWERED else _SYMBOL.fullmatch(symbol)
    if parts is None:
        return symbol
    prefix, unit = parts.groups()
    # Molar and debye, and the metre and day: 5 mM are no length.
    name = {"M": "molar", "D": "debye", **_UPPER}.get(unit)
    if name is not None:
        return _PREFIXES[prefix] + name
    upper = prefix in _UPPER_PREFIXES or symbol == "Gm"
    return _PREFIXES[prefix] + unit if upper else symbol


_FACTOR = re.compile(r"([*/. ]?) ?([a-zµ°%_]+)(?:\*\*|\^)?([+-]?[0-9]+)? ?")


def _product(key: str) -> str:
    """Return a product of powers as "kg m-3", "" if the text is none."""
    powers: dict[str, int] = {}
    place = 1 if re.match("1 ?/", key) else 0
    place += key[place : place + 1] == " "
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
    match = re.fullmatch(r"([0-9.eE+]+)\s*([a-zA-Z]*)", str(size).strip())
    try:
        count = float(match[1]) * _BYTES[match[2].lower()] if match else 0.0
    except (KeyError, ValueError):
        count = 0.0
    if not 1 <= count < math.inf:
        raise ConfigError(
            f"{key} {size!r} is not a size",
            allowed="a number of bytes, or text such as '512MiB'",
            fix=f"{key}='1GiB'",
        )
    return int(count)

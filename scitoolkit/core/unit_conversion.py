"""Exact linear conversions between units.

A unit that is not in the table has no conversion, so that different texts are an error and never
a guess. Traps of full parsers that the table avoids: UDUNITS reads `C` as coulomb and `ms-1` as
1/millisecond; pint reads `deg C` as degree times coulomb and converts it to K by 0.01745.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from scitoolkit.core.units import canonical_unit

BASE = ("m", "kg", "s", "k", "rad", "mol", "ampere")
"""Base units, in the order of `Unit.powers`."""


@dataclass(frozen=True)
class Unit:
    """A unit: base = value * factor + offset.

    Attributes:
        factor: size in base units.
        offset: base value at 0, for temperatures.
        powers: exponents of `BASE`.
    """

    factor: float
    offset: float
    powers: tuple[int, ...]


# name: (factor, product of base units); the exponents are read from the product.
_LINEAR = {
    "1": (1.0, ""),
    "%": (1e-2, ""),
    "ppm": (1e-6, ""),
    "ppb": (1e-9, ""),
    "m": (1.0, "m"),
    "km": (1e3, "m"),
    "dm": (1e-1, "m"),
    "cm": (1e-2, "m"),
    "mm": (1e-3, "m"),
    "um": (1e-6, "m"),
    "nm": (1e-9, "m"),
    "angstrom": (1e-10, "m"),
    "inch": (0.0254, "m"),
    "foot": (0.3048, "m"),
    "mile": (1609.344, "m"),
    "knot": (1852 / 3600, "m s-1"),
    "mph": (1609.344 / 3600, "m s-1"),
    "kph": (1 / 3.6, "m s-1"),
    "bohr": (5.29177210903e-11, "m"),
    "s": (1.0, "s"),
    "ms": (1e-3, "s"),
    "us": (1e-6, "s"),
    "ns": (1e-9, "s"),
    "ps": (1e-12, "s"),
    "fs": (1e-15, "s"),
    "min": (60.0, "s"),
    "h": (3600.0, "s"),
    "day": (86400.0, "s"),
    "week": (604800.0, "s"),
    "kg": (1.0, "kg"),
    "g": (1e-3, "kg"),
    "mg": (1e-6, "kg"),
    "ug": (1e-9, "kg"),
    "k": (1.0, "k"),
    "pa": (1.0, "kg m-1 s-2"),
    "mpa": (1e-3, "kg m-1 s-2"),
    "hpa": (1e2, "kg m-1 s-2"),
    "kpa": (1e3, "kg m-1 s-2"),
    "megapa": (1e6, "kg m-1 s-2"),
    "gpa": (1e9, "kg m-1 s-2"),
    "bar": (1e5, "kg m-1 s-2"),
    "dbar": (1e4, "kg m-1 s-2"),
    "atm": (101325.0, "kg m-1 s-2"),
    "n": (1.0, "kg m s-2"),
    "j": (1.0, "kg m2 s-2"),
    "kj": (1e3, "kg m2 s-2"),
    "megaj": (1e6, "kg m2 s-2"),
    "ev": (1.602176634e-19, "kg m2 s-2"),
    "mev": (1.602176634e-22, "kg m2 s-2"),
    "kev": (1.602176634e-16, "kg m2 s-2"),
    "megaev": (1.602176634e-13, "kg m2 s-2"),
    "hartree": (4.3597447222071e-18, "kg m2 s-2"),
    "kcal": (4184.0, "kg m2 s-2"),
    "w": (1.0, "kg m2 s-3"),
    "kw": (1e3, "kg m2 s-3"),
    "megaw": (1e6, "kg m2 s-3"),
    "hz": (1.0, "s-1"),
    "rad": (1.0, "rad"),
    "degree": (math.pi / 180, "rad"),
    "mol": (1.0, "mol"),
    "ampere": (1.0, "ampere"),
    "milliampere": (1e-3, "ampere"),
    "tesla": (1.0, "kg s-2 ampere-1"),
    "millitesla": (1e-3, "kg s-2 ampere-1"),
    "v": (1.0, "kg m2 s-3 ampere-1"),
    "mv": (1e-3, "kg m2 s-3 ampere-1"),
    "siemens": (1.0, "kg-1 m-2 s3 ampere2"),
    "millisiemens": (1e-3, "kg-1 m-2 s3 ampere2"),
    "microsiemens": (1e-6, "kg-1 m-2 s3 ampere2"),
}
_AFFINE = {"degc": (1.0, 273.15), "degf": (5 / 9, 459.67 * 5 / 9)}
"""Temperatures with their own zero, alone and never in a product."""
_SPELLINGS = {
    "å": "angstrom",
    "ang": "angstrom",
    "ångström": "angstrom",
    "micron": "um",
    "µm": "um",
    "inches": "inch",
    "ft": "foot",
    "feet": "foot",
    "miles": "mile",
    "knots": "knot",
    "kt": "knot",
    "kts": "knot",
    "kmh": "kph",
    "percent": "%",
    "gpm": "m",
    "d": "day",
    "days": "day",
    "hours": "h",
    "hour": "h",
    "hr": "h",
    "hrs": "h",
    "minutes": "min",
    "minute": "min",
    "weeks": "week",
    "seconds": "s",
    "gram": "g",
    "grams": "g",
    "newton": "n",
    "joule": "j",
    "joules": "j",
    "watt": "w",
    "watts": "w",
    "radian": "rad",
    "radians": "rad",
    "degrees": "degree",
    "deg": "degree",
    "degrees_north": "degree",
    "degree_north": "degree",
    "degrees_east": "degree",
    "degree_east": "degree",
    "kelvin": "k",
    "metre": "m",
    "metres": "m",
    "meter": "m",
    "meters": "m",
    "ha": "hartree",
    "deg_f": "degf",
    "degrees_fahrenheit": "degf",
    "degree_fahrenheit": "degf",
    "fahrenheit": "degf",
    "°f": "degf",
}
_PREFIXES = {"giga": 1e9, "mega": 1e6, "kilo": 1e3, "hecto": 1e2}
_PREFIXES |= {"centi": 1e-2, "milli": 1e-3, "micro": 1e-6, "nano": 1e-9}
"""Prefixes of units that are spelled out, such as kilometres."""
_FACTOR = re.compile(r"([a-zåµ°%_]+)(-?\d+)?")


def _powers(product: str) -> tuple[int, ...]:
    powers = dict.fromkeys(BASE, 0)
    for factor in product.split():
        match = _FACTOR.fullmatch(factor)
        assert match is not None
        powers[match[1]] = int(match[2] or 1)
    return tuple(powers.values())


_TABLE = {
    **{name: Unit(factor, 0.0, _powers(product)) for name, (factor, product) in _LINEAR.items()},
    **{name: Unit(factor, offset, _powers("k")) for name, (factor, offset) in _AFFINE.items()},
}


def unit_of(text: str) -> Unit | None:
    """Return the unit that a text names; None if a part of it is not in the table.

    Example:
        >>> unit_of("hPa").factor, unit_of("furlong") is None
        (100.0, True)
    """
    name = canonical_unit(text)
    if alone := _named(name) or _named(name.replace(" ", "_")):
        return alone
    factor, powers, sign = 1.0, [0] * len(BASE), 1
    for part in name.replace("/", " / ").split():
        if part == "/":
            sign = -1
            continue
        match = _FACTOR.fullmatch(part)
        unit = _named(match[1]) if match else None
        if match is None or unit is None or unit.offset:
            return None
        power = sign * int(match[2] or 1)
        factor *= unit.factor**power
        powers = [a + power * b for a, b in zip(powers, unit.powers, strict=True)]
    return Unit(factor, 0.0, tuple(powers))


def _named(name: str) -> Unit | None:
    """Return the unit of a name without powers."""
    unit = _TABLE.get(_SPELLINGS.get(name, name))
    for prefix, factor in _PREFIXES.items() if unit is None else ():
        # A unit of fewer letters is a symbol, whose prefix is one too.
        if name.startswith(prefix) and len(name) >= len(prefix) + 4:
            base = unit_of(name[len(prefix) :])
            return (
                None if base is None or base.offset else replace(base, factor=factor * base.factor)
            )
    return unit


def conversion(found: str, wanted: str) -> tuple[float, float] | None:
    """Return the factor and offset that convert one unit into another.

    Args:
        found: unit of the values.
        wanted: unit of the result.

    Returns:
        (factor, offset) with `wanted = found * factor + offset`; None if the units measure
        different things, or one of them is not known.

    Example:
        >>> conversion("degC", "K"), conversion("hPa", "Pa"), conversion("m s-1", "km/h")
        ((1.0, 273.15), (100.0, 0.0), (3.6, 0.0))
        >>> conversion("psu", "1"), conversion("m", "s")
        (None, None)
    """
    first, second = unit_of(found), unit_of(wanted)
    if first is None or second is None or first.powers != second.powers:
        return None
    scale = first.factor / second.factor
    return _decimal(scale), _decimal((first.offset - second.offset) / second.factor)


def _decimal(value: float) -> float:
    """Return a number without the rounding of the quotient: 3.6 instead of 3.5999999999999996."""
    return float(f"{value:.14g}")

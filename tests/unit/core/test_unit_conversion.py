"""Conversions of units are exact, inverse to each other, and never guessed."""

import pytest

from scitoolkit.core.unit_conversion import conversion
from scitoolkit.core.units import same_unit


@pytest.mark.parametrize(
    ("found", "wanted", "value", "expected"),
    [
        ("degC", "K", 20.0, 293.15),
        ("deg C", "K", 20.0, 293.15),
        ("degF", "degC", 212.0, 100.0),
        ("hPa", "Pa", 1013.25, 101325.0),
        ("m s-1", "km/h", 10.0, 36.0),
        ("g/kg", "kg/kg", 1.0, 1e-3),
        ("mm/day", "m s-1", 86400.0, 1e-3),
        ("MPa", "mPa", 1.0, 1e9),
        ("meV", "eV", 1.0, 1e-3),
        ("eV/Angstrom", "eV/nm", 1.0, 10.0),
        ("deg F", "degC", 212.0, 100.0),
        ("ppb", "ppm", 400.0, 0.4),
        ("knots", "m s-1", 3600.0, 1852.0),
        ("kilometers per hour", "m/s", 3.6, 1.0),
        ("hectopascals", "mbar", 3.0, 3.0),
        ("MPA", "Pa", 1.0, 1e6),
        ("1/h", "s-1", 3600.0, 1.0),
        ("feet", "inches", 1.0, 12.0),
        ("%", "(0 - 1)", 50.0, 0.5),
    ],
)
def test_values(found, wanted, value, expected):
    factor, offset = conversion(found, wanted)
    assert value * factor + offset == pytest.approx(expected, rel=1e-12)
    back = conversion(wanted, found)
    assert expected * back[0] + back[1] == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("psu", "1"),
        ("m", "s"),
        ("Hz", "s"),
        ("furlong", "m"),
        ("degC m", "K m"),
        ("kcal/mol", "eV"),
        ("kilodegC", "degC"),
        ("millibananas", "m"),
        ("milliinm", "m"),
    ],
)
def test_no_guess(found, wanted):
    assert conversion(found, wanted) is None


def test_prefixes_that_differ_in_case_are_other_units():
    assert not same_unit("MPa", "mPa")
    assert not same_unit("MeV", "meV")
    assert same_unit("M", "m")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *[
            ("mS", "ms"),
            ("S/m", "s/m"),
            ("mS cm-1", "ms/cm"),
            ("pA", "Pa"),
            ("nM", "nm"),
            ("A", "a"),
        ],
        *[
            ("mM", "mm"),
            ("T", "t"),
            ("H", "h"),
            ("Pg", "pg"),
            ("Mm", "mm"),
            ("Ma", "mA"),
            ("G", "g"),
        ],
        *[
            ("PW", "pW"),
            ("kG", "kg"),
            ("mG", "mg"),
            ("PHz", "pHz"),
            ("Gm", "gm"),
            ("W S-2", "W s-2"),
        ],
    ],
)
def test_symbols_that_differ_in_case_are_other_units(first, second):
    assert not same_unit(first, second)
    assert conversion(first, second) is None or conversion(first, second)[0] != 1
    assert same_unit(first, first)
    assert same_unit(second, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *[("PA", "Pa"), ("M/S", "m/s"), ("KG M-3", "kg/m3"), ("µS/cm", "uS cm-1"), ("HPA", "hPa")],
        *[("MM", "mm"), ("Kelvin", "K"), ("Pascals", "Pa"), ("SEC", "s"), ("DEG C", "degC")],
        *[("W m⁻²", "W m-2"), ("m·s⁻¹", "m/s"), ("℃", "degC"), ("metres per second", "m/s")],
        *[("degrees C", "degC"), ("degree Kelvin", "K"), ("Degrees Celsius", "degC")],
        *[("1/s", "s-1"), ("1 / (m)", "1 / (m)"), ("per second", "1/s")],
        *[("PSU", "psu"), ("Degrees_North", "degrees_north"), ("siemens m-1", "S/m")],
    ],
)
def test_words_and_capitals_are_the_same_unit(first, second):
    assert same_unit(first, second)


@pytest.mark.parametrize(
    ("found", "wanted", "factor"), [("mS/cm", "S/m", 0.1), ("mT", "T", 1e-3), ("T", "Wb m-2", None)]
)
def test_electric_units(found, wanted, factor):
    line = conversion(found, wanted)
    assert line is None if factor is None else line == (pytest.approx(factor), 0.0)

"""Facts of data: each field that changes alone is a difference, and NaN never passes."""

from dataclasses import replace

import pytest

from scitoolkit.core.data_differences import Accepts, compare, packed_dates, problems, refuse
from scitoolkit.core.data_facts import DataFacts, Dim, Step, Var
from scitoolkit.core.errors import DataError

HOURS = Step(21600.0, "s", 21600.0, 21600.0)
TIME = Dim("time", "time", 24, "dates", calendar="standard", direction=1, step=HOURS)
LAT = Dim(
    "lat", "latitude", 9, "numbers", "degrees_north", "", 1, Step(10.0, "", 10.0, 10.0), -40.0, 40.0
)
LON = Dim(
    "lon",
    "longitude",
    36,
    "numbers",
    "degrees_east",
    "",
    1,
    Step(10.0, "", 10.0, 10.0),
    0.0,
    350.0,
    360.0,
)
FACTS = DataFacts(
    (Var("t", "K", "real", ("time", "lat", "lon")),),
    (TIME, LAT, LON),
    {"nu": (0.1, 0.2, "m2/s")},
    "mask",
    ("H", "O"),
    {"energy": "eV"},
)


def with_dim(dim: Dim, **changes: object) -> DataFacts:
    return replace(FACTS, dims=tuple(replace(d, **changes) if d == dim else d for d in FACTS.dims))


def with_variable(**changes: object) -> DataFacts:
    return replace(FACTS, variables=(replace(FACTS.variables[0], **changes),))


def test_round_trip_and_equality():
    assert DataFacts.from_json(FACTS.to_json()) == FACTS
    assert compare(FACTS, FACTS) == []


NAN = float("nan")
CHANGES = {
    "missing": (replace(FACTS, variables=(Var("temp", "K"),)), "error"),
    "unit converts": (with_variable(units="degC"), "convert"),
    "unit of another kind": (with_variable(units="m"), "error"),
    "unit unknown": (with_variable(units=""), "warning"),
    "complex": (with_variable(kind="complex"), "error"),
    "components": (with_variable(shape=(3,)), "error"),
    "constant along a dim": (with_variable(dims=("lat", "lon")), "error"),
    "order of dims": (with_variable(dims=("time", "lon", "lat")), "convert"),
    "step": (with_dim(TIME, step=Step(3600.0, "s", 3600.0, 3600.0)), "error"),
    "step in months": (with_dim(TIME, step=Step(1.0, "month", 1.0, 1.0)), "error"),
    "step not a number": (with_dim(TIME, step=Step(NAN, "s", NAN, NAN)), "error"),
    "no times": (with_dim(TIME, kind="none", step=None), "warning"),
    "text for times": (with_dim(TIME, kind="other", step=None), "error"),
    "no dates": (with_dim(TIME, kind="numbers"), "error"),
    "calendar of 360 days": (with_dim(TIME, calendar="360_day"), "error"),
    "calendar without leap days": (with_dim(TIME, calendar="noleap"), "warning"),
    "direction": (with_dim(LAT, direction=-1, first=40.0, last=-40.0), "convert"),
    "no latitude": (replace(FACTS, dims=(TIME, LON)), "error"),
    "region": (with_dim(LAT, first=-30.0, last=50.0), "error"),
    "region not a number": (with_dim(LAT, first=NAN, last=NAN), "error"),
    "size": (with_dim(LAT, size=8), "error"),
    "spacing": (with_dim(LAT, step=Step(5.0, "", 5.0, 5.0)), "error"),
    "longitudes from -180": (with_dim(LON, first=-180.0, last=170.0), "convert"),
    "half of the longitudes": (with_dim(LON, period=None), "error"),
    "mask": (replace(FACTS, mask="other"), "error"),
    "parameter missing": (replace(FACTS, parameters={}), "error"),
    "parameter outside": (replace(FACTS, parameters={"nu": (0.1, 0.3, "m2/s")}), "warning"),
    "parameter not a number": (replace(FACTS, parameters={"nu": (NAN, NAN, "m2/s")}), "warning"),
    "parameter in another unit": (replace(FACTS, parameters={"nu": (0.1, 0.2, "s")}), "error"),
    "species": (replace(FACTS, species=("H", "Fe")), "error"),
    "label": (replace(FACTS, labels={}), "error"),
    "label in another unit": (replace(FACTS, labels={"energy": "Hartree"}), "error"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_alone_is_a_difference(name):
    found, level = CHANGES[name]
    differences = compare(FACTS, found)
    assert [d.level for d in differences] == [level], [str(d) for d in differences]
    if level == "error":
        with pytest.raises(DataError) as error:
            refuse(differences, "file.nc")
        assert "file.nc" in str(error.value)
        assert differences[0].trained in str(error.value)


@pytest.mark.parametrize("name", [n for n, (_, level) in CHANGES.items() if level == "convert"])
def test_conversions_can_be_forbidden(name):
    assert compare(FACTS, CHANGES[name][0], Accepts(convert=False))[0].level == "error"


def test_another_standard_name_is_told():
    named = with_variable(standard_name="air_temperature")
    other = with_variable(standard_name="sea_surface_temperature")
    assert compare(FACTS, other) == []  # unknown on one side
    assert [d.level for d in compare(named, other)] == ["warning"]


@pytest.mark.parametrize(
    ("name", "values", "level"),
    [
        ("cell_methods", ("time: mean", "time: maximum"), "warning"),
        ("positive", ("up", "down"), "error"),  # every value has the other sign
    ],
)
def test_another_method_is_told_and_another_sign_refused(name, values, level):
    own, other = (with_variable(**{name: value}) for value in values)
    assert compare(FACTS, other) == []  # unknown on one side
    assert [d.level for d in compare(own, other)] == [level]


def test_training_data_without_times_are_not_compared_with_dates():
    untimed = with_dim(TIME, kind="none", step=None)
    assert [d.level for d in compare(untimed, FACTS)] == ["warning"]
    assert [d.level for d in compare(untimed, FACTS, Accepts(dates=True))] == ["error"]


def test_times_of_other_units_are_the_same_step():
    minutes = Step(360.0, "minutes", 360.0, 360.0)
    hours = Step(6.0, "hours", 6.0, 6.0)
    assert hours.same(minutes)
    assert not hours.same(replace(minutes, number=60.0))
    assert not hours.same(replace(minutes, unit="furlong"))


@pytest.mark.parametrize(
    ("first", "last", "step", "form"),
    [
        (198001, 199912, 1, "YYYYMM"),
        (19800101, 19991201, 100, "YYYYMMDD"),
        (1980.04, 1999.96, 1 / 12, "decimal years"),
        (0, 239, 1, ""),
        (2000, 2019, 1, ""),
        (100000, 239000, 1000, ""),
    ],
)
def test_dates_packed_into_numbers(first, last, step, form):
    dim = Dim(
        "time", "time", 240, "numbers", step=Step(step, "", step, step), first=first, last=last
    )
    assert packed_dates(dim) == form
    assert bool(problems(DataFacts((), (dim,)))) == bool(form)


def test_problems_of_data_by_themselves():
    assert problems(FACTS) == []
    for broken in (
        with_variable(kind="complex"),
        with_variable(kind="other"),
        with_dim(TIME, step=Step(5.0, "s", 2.0, 15.0)),
        with_dim(TIME, step=Step(5.0, "s", 0.0, 5.0)),
        with_dim(TIME, step=Step(5.0, "s", NAN, NAN)),
        with_dim(TIME, kind="other", step=None),
        with_dim(TIME, kind="numbers", first=NAN),
        with_dim(LAT, last=float("inf")),
        with_dim(LAT, step=Step(10.0, "", NAN, NAN)),
        with_dim(LON, repeats=True),
        replace(FACTS, dims=(*FACTS.dims, replace(TIME, name="valid_time"))),
        FACTS.with_values({"t": {"change": 2e-4, "magnitude": 101325.0}}),
    ):
        assert [d.level for d in problems(broken)] == ["error"]
    uneven = with_dim(TIME, step=Step(5.0, "s", 2.0, 15.0))
    assert problems(uneven, Accepts(uneven=True)) == []


def test_damaged_facts_are_refused():
    for damaged in ({}, {**FACTS.to_json(), "version": 99}, {**FACTS.to_json(), "dims": [{}]}):
        with pytest.raises(DataError):
            DataFacts.from_json(damaged)


@pytest.mark.parametrize("role", ["", "input", "node", "edge"])
def test_an_input_that_the_training_did_not_have_is_refused_where_a_model_allows_none(role):
    trained = DataFacts((Var("x"), Var("y", role="label")))
    found = DataFacts((Var("x"), Var("z", role=role)))
    strict = Accepts(optional=("label",), others=False)
    assert [d.key for d in compare(trained, found, strict)] == ["variable z"]
    assert not compare(trained, found, replace(strict, others=True))
    unlabelled = DataFacts((Var("x"),))
    assert not compare(unlabelled, trained, strict)  # a label is no input

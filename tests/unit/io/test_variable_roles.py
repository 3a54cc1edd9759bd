"""Variables that describe others are recognised from the attributes of all objects of a file."""

from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.io.variable_roles import roles_of_variables


def roles(variables: dict[str, dict], groups: tuple[dict, ...] = (), ndim: int = 2) -> dict:
    return roles_of_variables(variables, dict.fromkeys(variables, ndim), groups)


@pytest.mark.parametrize(
    ("holder", "named", "role"),
    [
        ({"coordinates": "alat along"}, ["alat", "along"], "coordinate"),
        ({"coordinates": b"alat"}, ["alat"], "coordinate"),
        ({"coordinates": np.array(["alat", "along"], object)}, ["alat", "along"], "coordinate"),
        ({"coordinates": "/grid/alat"}, ["alat"], "coordinate"),
        ({"bounds": "edge_of_y"}, ["edge_of_y"], "bounds"),
        ({"climatology": "spans"}, ["spans"], "climatology bounds"),
        (
            {"formula_terms": "a: hyam b: hybm p0: P0 ps: PS"},
            ["hyam", "hybm", "PS"],
            "formula term",
        ),
        ({"formula_terms": "a:hyam b:hybm"}, ["hyam", "hybm"], "formula term"),
        ({"cell_measures": "area: sizes"}, ["sizes"], "cell measure"),
        ({"grid_mapping": "crs: px py"}, ["crs", "px", "py"], "grid mapping"),
        ({"ancillary_variables": "t_error"}, ["t_error"], "ancillary"),
        ({"cf_role": "mesh_topology", "node_coordinates": "mx my"}, ["mx", "my"], "mesh"),
        ({"face_coordinates": "fx", "edge_coordinates": "ex"}, ["fx", "ex"], "mesh"),
        ({"volume_coordinates": "vx"}, ["vx"], "mesh"),
        ({"face_node_connectivity": "faces"}, ["faces"], "mesh"),
        ({"geometry": "shapes"}, ["shapes"], "geometry"),
        ({"node_coordinates": "nx ny", "nodes": "n2"}, ["nx", "n2"], "mesh"),
    ],
)
@pytest.mark.parametrize("place", ["variable", "group"])
def test_variables_named_by_attributes(
    holder: dict, named: list[str], role: str, place: str
) -> None:
    variables: dict[str, dict] = {"data": {"units": "K"}, **{name: {} for name in named}}
    found = roles(variables | ({"h": holder} if place == "variable" else {}), (holder,))
    assert set(named) <= set(found)
    assert role in found.values()
    assert "data" not in found


def test_keys_of_terms_name_no_variable() -> None:
    variables = {"a": {"units": "K"}, "area": {}, "z": {"formula_terms": "a: c1 b: c2"}}
    variables["t"] = {"cell_measures": "area: m1"}
    assert not {"a", "area", "t"} & set(roles(variables))


@pytest.mark.parametrize(
    ("attributes", "role"),
    [
        ({"units": "degrees_north"}, "coordinate"),
        ({"units": "degree_E"}, "coordinate"),
        ({"units": b"hours since 1900-01-01"}, "coordinate"),
        ({"axis": "X"}, "coordinate"),
        ({"standard_name": "projection_x_coordinate", "units": "m"}, "coordinate"),
        ({"standard_name": "atmosphere_sigma_coordinate"}, "coordinate"),
        ({"standard_name": "cell_area", "units": "m2"}, "cell measure"),
        ({"flag_values": np.arange(3), "flag_meanings": "a b c"}, "flag"),
        ({"cf_role": "timeseries_id"}, "identifier"),
        ({"units": "K", "standard_name": "air_temperature"}, ""),
        ({"positive": "up", "units": "W m-2"}, ""),
        ({"units": 3.0}, ""),
        ({}, ""),
    ],
)
def test_variables_that_say_what_they_are(attributes: dict, role: str) -> None:
    assert roles({"v": attributes}).get("v", "") == role


def test_positive_marks_vertical_axes_only() -> None:
    assert roles({"h": {"positive": "up"}}, ndim=1) == {"h": "coordinate"}


@pytest.mark.parametrize("name", ["lat", "XLONG", "nav_lat", "/grid/longitude", "time"])
def test_names_count_last(name: str) -> None:
    assert roles({name: {}}) == {name: "coordinate"}


def test_bounds_by_name_need_their_variable() -> None:
    assert roles({"x": {}, "x_bnds": {}, "y_bnds": {}}) == {"x_bnds": "bounds"}

"""Templates and rules of references that would give wrong addresses are refused by name."""

from __future__ import annotations

import json

import pytest

from scitoolkit.core.errors import DataError
from scitoolkit.io.loader.references import read_references


def read(folder, stored):
    path = folder / "a.json"
    path.write_text(stored if isinstance(stored, str) else json.dumps(stored))
    return read_references(path)


def rule(**parts):
    return {"key": "u/{{i}}", "url": "a", "dimensions": {"i": {"stop": 2}}, **parts}


def test_templates_call_each_other(tmp_path):
    templates = {"file": "{{root}}/{{name}}.nc", "root": "s3://b"}
    refs = {"u": ["{{file(name='c')}}", 0, 4]}
    stored = {"version": 1, "templates": templates, "refs": refs}
    assert read(tmp_path, stored) == {"u": ["s3://b/c.nc", 0, 4]}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"templates": {"f": "{{c}}/x"}, "refs": {"u": ["{{f}}"]}}, r"f has variables.*\{\{f\("),
        ({"templates": {"f": "{{f()}}"}, "refs": {"u": ["{{f()}}"]}}, "recursion"),
        ({"gen": [rule(dimensions={"i": {"stop": 10**30}})]}, r"dimensions.*1 to 10\^8"),
        ({"gen": [rule(offset="²", length="1")]}, "'²' is no number of bytes"),
        ({"gen": [rule(key="u", url="{{i}}")]}, r"u refers to \['0'\] and to \['1'\]"),
        ({"gen": [rule()], "refs": {"u/1": ["b"]}}, r"u/1 refers to \['b'\] and to \['a'\]"),
    ],
)
def test_what_would_be_a_wrong_address_is_refused(tmp_path, parts, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, {"version": 1, **parts})


def test_templates_without_a_version_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"templates: beside no version.*version: 1"):
        read(tmp_path, {"templates": {"f": "s3://b"}, "refs": {"u": ["{{f}}/c"]}})


def test_json_that_is_too_deep_is_refused(tmp_path):
    with pytest.raises(DataError, match="no references that can be read"):
        read(tmp_path, "[" * 100_000)

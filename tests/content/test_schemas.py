"""The JSON schema of every domain is complete and describes every shipped workflow."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from scitoolkit import api
from scitoolkit.cli.main import run_cli
from scitoolkit.core.config import read_document
from scitoolkit.core.content import content_root
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.jobs import domains

WORKFLOWS = sorted(content_root("workflows").glob("*/*.yaml"))
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "number": int | float,
    "integer": int,
    "boolean": bool,
    "null": type(None),
}

schema_of = cache(api.schema)


def nodes(value: Any):
    if isinstance(value, dict):
        yield value
    children = value.values() if isinstance(value, dict) else value
    for child in children if isinstance(value, dict | list) else ():
        yield from nodes(child)


def resolved(node: dict, root: dict) -> dict:
    while "$ref" in node:
        head, defs, name = node["$ref"].split("/")
        assert (head, defs) == ("#", "$defs")
        node = root["$defs"][name]
    return node


def unknown_keys(value: Any, node: dict, root: dict, key: str = "") -> list[str]:
    """Return the keys and values of a configuration that its schema does not describe."""
    node = resolved(node, root)
    choices = node.get("anyOf") or node.get("oneOf")
    if choices:
        return min((unknown_keys(value, one, root, key) for one in choices), key=len)
    if "type" in node and not isinstance(value, TYPES[node["type"]]):
        return [f"{key} is no {node['type']}"] * 99
    if value not in node.get("enum", [node.get("const", value)]):
        return [f"{key}={value}"] * 99
    if isinstance(value, list):
        return [k for v in value for k in unknown_keys(v, node.get("items", {}), root, key)]
    if not isinstance(value, dict):
        return []
    found = [f"{key}.{k} is missing" for k in node.get("required", []) if k not in value]
    for k, v in value.items():
        below = node.get("properties", {}).get(k, node.get("additionalProperties", {}))
        if below is False:
            found.append(f"{key}.{k}")
        elif below is not True:
            found += unknown_keys(v, below, root, f"{key}.{k}")
    return found


@pytest.mark.parametrize("domain", sorted(domains))
def test_the_schema_of_a_domain_is_complete(domain):
    schema = json.loads(json.dumps(schema_of(domain)))
    config = domains.get(domain).config_class
    assert schema["properties"].keys() == config.model_fields.keys()
    assert schema["properties"]["domain"]["const"] == domain
    for node in nodes(schema):
        if isinstance(node.get("$ref"), str):
            resolved(node, schema)
    try:
        import jsonschema
    except ImportError:
        return
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda f: f"{f.parent.name}/{f.name}")
def test_the_schema_describes_a_workflow(file):
    raw = read_document(file).raw
    schema = schema_of(raw["domain"])
    assert unknown_keys(raw, schema, schema) == []
    typo = {**raw, "sede": 1}
    assert unknown_keys(typo, schema, schema) == [".sede"]


def test_members_are_defined_once_and_may_contain_their_kind():
    schema = schema_of("forecasting")
    stacking = schema["$defs"]["StackingConfig"]["properties"]["members"]["items"]["anyOf"]
    assert {"$ref": "#/$defs/StackingConfig"} in stacking
    assert "stacking" in stacking[0]["enum"]
    raw = {"domain": "forecasting", "data": {"path": "a.nc", "variable": "v"}}
    nested = {"name": "stacking", "members": ["linear", {"name": "pod_ridge", "rnak": 5}]}
    found = unknown_keys({**raw, "forecaster": nested}, schema, schema)
    assert found == [".forecaster.members.rnak"]


def test_fields_have_the_texts_of_the_docstring():
    budget = schema_of("search")["$defs"]["BudgetConfig"]
    assert budget["properties"]["workers"]["description"].startswith("number of worker processes")
    assert "Attributes" not in budget["description"]


def test_the_command_prints_the_schema(capsys):
    assert run_cli(["schema", "search"]) == 0
    readable = capsys.readouterr().out
    assert run_cli(["schema", "search", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(readable) == schema_of("search")
    assert len(readable.splitlines()) > 100
    assert run_cli(["schema", "serach"]) == 2
    message = capsys.readouterr().err
    assert "Allowed: compression, emulation" in message
    assert "Fix: search" in message


def test_a_registered_domain_has_a_schema():
    with pytest.raises(ConfigError, match="copied"):
        api.schema("copied")
    domains.register("copied")(domains.get("graphs"))
    try:
        assert "patternProperties" in api.schema("copied")
    finally:
        domains.unregister("copied")

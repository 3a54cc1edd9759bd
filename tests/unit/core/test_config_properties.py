"""Properties of every configuration class: all jobs, and all members of all plug-in kinds.

Nothing here names a class: the list is read from the registries, so a new member is covered.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from scitoolkit.core import plugins
from scitoolkit.core.config import Config, ConfigProblems, Document, config_keys, dump_config
from scitoolkit.core.job_config import JobConfig
from scitoolkit.core.suggest import nearest_key

EXAMPLES = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

# The least that each job needs; a job that is not listed is read from `{}` and says what it lacks.
LEAST: dict[str, dict[str, Any]] = {
    "forecasting": {"data": {"path": "/a.nc", "variable": "sst"}},
    "emulation": {"data": {"path": "/a.h5", "inputs": ["u"], "outputs": ["u"]}},
    "superresolution": {"data": {"path": "/a.h5", "fields": ["u"]}, "crop": {"every": {"x": 2}}},
    "graphs": {"data": {"path": "/a.npz"}},
    "graph_links": {"data": {"path": "/a.npz"}},
    "graph_sets": {"data": {"path": "/a.npz"}},
    "mesh_transport": {"data": {"path": "/a.h5"}},
    "potentials": {"data": {"path": ["/a.xyz"]}, "model": {"name": "mace"}},
    "compression": {"data": {"path": "/a.npy"}},
    "generate": {"generator": {"name": "kuramoto_sivashinsky"}},
    "search": {
        "config": "/a.yaml",
        "space": {"model.hidden": [4, 8]},
        "objectives": [{"name": "loss"}],
    },
}


def schemas() -> dict[str, type[Config]]:
    """Return every configuration class that a file can reach, by kind and name."""
    found: dict[str, type[Config]] = {}
    for kind, registry in plugins.kinds().items():
        for name in registry.names():
            member = registry.get(name)
            member = getattr(member, "config_class", member)
            if isinstance(member, type) and issubclass(member, Config):
                found[f"{kind}:{name}"] = member
    return found


SCHEMAS = schemas()


def least(name: str) -> dict[str, Any]:
    kind, _, leaf = name.partition(":")
    return LEAST.get(leaf, {}) if kind == "domain" else {}


def resolved(name: str) -> Config:
    return Document(raw=least(name)).validate(SCHEMAS[name])


def is_complete(name: str) -> bool:
    """Return whether a member can be made without settings; the others have no default to test."""
    try:
        resolved(name)
    except ConfigProblems:
        return False
    return True


COMPLETE = sorted(name for name in SCHEMAS if is_complete(name))
KEYS = {name: list(config_keys(SCHEMAS[name])) for name in COMPLETE}


def keys_of(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every dotted key of a dumped configuration and its value, sections included."""
    for key, value in tree.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict) and not any("." in inner for inner in value):
            yield from keys_of(value, f"{prefix}{key}.")


def write(tree: dict[str, Any], key: str, value: Any) -> None:
    """Write a dotted key into a nested mapping, below what is there."""
    *parents, leaf = key.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    if isinstance(value, dict) and isinstance(tree.get(leaf), dict):
        value = {**value, **tree[leaf]}
    tree[leaf] = value


def absolute(value: Any) -> Any:
    """Return a dump with absolute paths: on the command line they mean the current folder."""
    if isinstance(value, dict):
        return {key: absolute(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [absolute(inner) for inner in value]
    return value.absolute() if isinstance(value, Path) else value


def read(name: str, written: dict[str, Any], overrides: dict[str, Any]) -> Config:
    texts = [f"{key}={yaml.safe_dump(v, default_flow_style=True)}" for key, v in overrides.items()]
    document = Document(raw=copy.deepcopy(written))
    for text in texts:
        document.override(text)
    return document.validate(SCHEMAS[name])


def test_every_job_is_covered():
    jobs = {name for name, schema in SCHEMAS.items() if issubclass(schema, JobConfig)}
    assert jobs <= set(COMPLETE), f"write the least settings of {jobs - set(COMPLETE)} in LEAST"


@pytest.mark.parametrize("name", COMPLETE)
@EXAMPLES
@given(data=st.data())
def test_a_key_written_at_its_resolved_value_changes_nothing(name, data):
    config = resolved(name)
    keys = dict(keys_of(config.model_dump(mode="json")))
    chosen = data.draw(st.lists(st.sampled_from(sorted(keys)), unique=True, max_size=4))
    written, overrides = copy.deepcopy(least(name)), {}
    for key in chosen:
        if data.draw(st.booleans(), label=f"{key} as an override"):
            overrides[key] = keys[key]
        else:
            write(written, key, keys[key])
    again = read(name, written, overrides)
    assert absolute(again.model_dump()) == absolute(config.model_dump())


@pytest.mark.parametrize("name", COMPLETE)
def test_each_single_key_written_at_its_resolved_value_changes_nothing(name):
    config = resolved(name)
    for key, value in keys_of(config.model_dump(mode="json")):
        written = copy.deepcopy(least(name))
        write(written, key, value)
        assert read(name, written, {}).model_dump() == config.model_dump(), key


def varied(value: Any, draw: Any) -> Any:
    """Return another value of the same type; it need not be allowed."""
    if isinstance(value, bool):
        return draw(st.booleans())
    if isinstance(value, int):
        return draw(st.integers(0, 9))
    if isinstance(value, float):
        return draw(st.floats(0, 2, allow_subnormal=False))
    return value


@pytest.mark.parametrize("name", COMPLETE)
@EXAMPLES
@given(data=st.data())
def test_a_dumped_configuration_is_a_valid_input_and_equal(name, data):
    keys = sorted(keys_of(resolved(name).model_dump(mode="json")))
    written = copy.deepcopy(least(name))
    for key, value in data.draw(st.lists(st.sampled_from(keys), max_size=3)):
        write(written, key, varied(value, data.draw))
    try:
        config = read(name, written, {})
    except ConfigProblems:
        assume(False)
    dumped = yaml.safe_load(dump_config(config))
    assert Document(raw=dumped).validate(SCHEMAS[name]) == config


@pytest.mark.parametrize("name", COMPLETE)
@EXAMPLES
@given(data=st.data())
def test_an_unknown_key_names_the_nearest(name, data):
    known = KEYS[name]
    key = data.draw(st.sampled_from(known))
    section, _, leaf = key.rpartition(".")
    place = data.draw(st.integers(0, len(leaf) - 1))
    typo = ".".join(filter(None, [section, leaf[: place + 1] + leaf[place:]]))
    assume(typo not in known)
    near = nearest_key(typo, known)
    assert near is not None
    written = copy.deepcopy(least(name))
    parents = typo.split(".")[:-1]
    assume(_is_open(written, parents))
    write(written, typo, 1)
    try:
        read(name, written, {})
    except ConfigProblems as error:
        found = {p.key: p.message for p in error.problems}
        assume(typo in found)  # else the section around it is of another member, or a value
        assert f"did you mean {near}?" in found[typo]
    else:
        raise AssertionError(f"{typo} was accepted")


def _is_open(tree: Any, parents: list[str]) -> bool:
    for parent in parents:
        if not isinstance(tree, dict):
            return False
        tree = tree.get(parent, {})
    return isinstance(tree, dict)


@pytest.mark.parametrize("name", [n for n in COMPLETE if n.startswith("domain:")])
def test_a_written_key_leaves_the_defaults_of_the_domain_around_it(name):
    """Defaults < file < override at every depth, with each domain's own nested defaults."""
    default = dict(keys_of(resolved(name).model_dump(mode="json")))
    tried = 0
    for key, value in default.items():
        if not isinstance(value, int | float):
            continue
        other = not value if isinstance(value, bool) else value + 1
        written = copy.deepcopy(least(name))
        write(written, key, value)
        try:
            config = read(name, written, {key: other})
        except ConfigProblems:
            continue  # not every number is allowed
        tried += 1
        found = dict(keys_of(config.model_dump(mode="json")))
        changed = {k for k in found if not isinstance(found[k], dict) and found[k] != default[k]}
        # A section that sets no seed has that of the job.
        followers = {k for k in found if k.endswith(".seed")} if key == "seed" else set()
        assert {key} <= changed <= {key} | followers
    assert tried

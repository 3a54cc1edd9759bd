"""Plug-in kinds: names, members, and unions that do not depend on the order of registration."""

from __future__ import annotations

import importlib
from typing import Annotated, ClassVar, Literal

import pytest

from scitoolkit.core import plugins
from scitoolkit.core.config import Config, ConfigProblems, config_keys
from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.core.plugins import Choice, Kind, kinds


class Circle(Config):
    """A round shape."""

    requires: ClassVar[tuple[str, ...]] = ("no_such_package",)
    name: Literal["circle"] = "circle"
    radius: float = 1.0


class Square(Config):
    name: Literal["square"] = "square"
    side: float = 1.0


def _shapes() -> Kind[type[Config]]:
    shapes: Kind[type[Config]] = Kind("test shape")
    shapes.register("circle")(Circle)
    return shapes


def test_a_name_cannot_be_taken_twice():
    shapes = _shapes()
    shapes.register("circle")(Circle)  # the same member again changes nothing
    with pytest.raises(ValueError, match="'circle' is registered twice"):
        shapes.register("circle")(Square)


def test_an_unknown_name_lists_all_and_the_nearest():
    with pytest.raises(ConfigError, match=r"Allowed: circle\. Fix: circle"):
        _shapes().get("circel")


def test_members_registered_after_the_union_was_declared_are_accepted():
    shapes = _shapes()

    class Drawing(Config):
        shape: Annotated[Config, Choice(shapes)] = Circle()

    shapes.register("square")(Square)
    assert Drawing(shape={"name": "square", "side": 2}).shape == Square(side=2)
    assert Drawing.model_validate({"shape": {"radius": 3}}).shape == Circle(radius=3)
    assert set(config_keys(Drawing)) == {"shape", "shape.name", "shape.radius", "shape.side"}
    assert Drawing(shape=Square()).model_dump() == {"shape": {"name": "square", "side": 1.0}}


def test_errors_of_a_member_carry_the_key_and_the_nearest_name():
    shapes = _shapes()
    shapes.register("square")(Square)

    class Drawing(Config):
        shape: Annotated[Config, Choice(shapes)]

    with pytest.raises(ConfigProblems, match=r"shape\.name: 'sqare' .*did you mean square"):
        Drawing(shape={"name": "sqare"})
    with pytest.raises(ConfigProblems, match=r"shape\.sid: unknown key .*shape\.side"):
        Drawing(shape={"name": "square", "sid": 1})
    with pytest.raises(ConfigProblems, match=r"shape\.name: missing"):
        Drawing(shape={})


def test_a_member_says_what_it_lacks():
    row = _shapes().member("circle")
    assert (row.summary, row.missing) == ("A round shape.", ("no_such_package",))
    assert row.problem == "needs no_such_package"


def test_a_member_that_cannot_be_imported_is_refused_by_name(monkeypatch):
    from importlib.metadata import EntryPoint

    entry = EntryPoint("bent", "no_such_module:Bent", "scitoolkit.test_shape")
    monkeypatch.setattr(plugins, "_installed", lambda: {"scitoolkit.test_shape": {"bent": entry}})
    shapes = _shapes()
    assert shapes.names() == ["bent", "circle"]
    with pytest.raises(BackendError, match=r"test shape 'bent' cannot be loaded .*no_such_module"):
        shapes.get("bent")
    assert "no_such_module" in shapes.member("bent").problem


def test_every_kind_lists_its_members_and_each_can_be_loaded():
    for kind in kinds().values():
        assert kind.names(), kind.name
        for row in kind.members():
            member = kind.get(row.name)  # an error if it cannot be loaded
            refuses = row.problem and row.problem == getattr(member, "unavailable", str)()
            assert not row.problem or row.missing or refuses, row


def test_members_are_picked_by_their_own_name():
    for kind in kinds().values():
        for name in kind:
            field = getattr(kind.get(name), "model_fields", {}).get("name")
            assert field is None or field.default == name


def test_the_contract_that_a_kind_names_exists():
    with_contract = {name: kind.contract for name, kind in kinds().items() if kind.contract}
    assert "codec" in with_contract
    for contract in with_contract.values():
        module, _, name = contract.partition(":")
        assert isinstance(getattr(importlib.import_module(module), name), type)


def test_damaged_metadata_of_another_package_is_told_and_passed_over(tmp_path, caplog, monkeypatch):
    about = tmp_path / "other-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (about / "entry_points.txt").write_bytes(b"[scitoolkit.codec]\nbroken = \xff\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.refresh()
    try:
        assert "interpolation" in plugins.kind("codec").names()
    finally:
        monkeypatch.undo()
        plugins.refresh()
    assert f"plug-ins of a package in {tmp_path} are not read" in caplog.text

"""Plug-in kinds: the registry of every type of component that users can add.

A `Kind` (codec, optimizer, format, ...) maps names to members. Members come from the entry-point
group `scitoolkit.<kind>` of this and any other installed package, or from the decorator `register`,
in any order. A member is imported on first use, so listing names is cheap.

A member of a configurable kind is a `Config` subclass: its fields are the settings (`name` selects
the member), its class attributes are capabilities, its methods do the work. Code that depends on a
difference between members reads a capability, never a name.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, distributions
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic_core import PydanticCustomError, core_schema

from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.core.suggest import nearest_name

log = get_logger(__name__)
T = TypeVar("T")
GROUP = "scitoolkit."
_entered: ContextVar[frozenset[str]] = ContextVar("_entered", default=frozenset())


class NeedsPackages:
    """Mixin of members that need optional packages.

    Attributes:
        requires: names of the packages to import.

    Example:
        >>> class Scribe(NeedsPackages):
        ...     requires = ("json", "no_such_package")
        >>> Scribe.unavailable()
        'no_such_package is not installed'
    """

    requires: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def unavailable(cls) -> str:
        """Return why the member cannot be used on this machine, "" if it can."""
        missing = [p for p in cls.requires if not _importable(p)]
        return f"{' and '.join(missing)} is not installed" if missing else ""


@dataclass(frozen=True)
class Member:
    """Description of a plug-in: one row of `scitoolkit ls KIND`.

    Attributes:
        name: the name used in configurations.
        origin: distribution that provides it, or the module that registered it.
        summary: first line of its docstring.
        missing: required packages that are not installed.
        problem: why it cannot be used on this machine, "" if it can.
    """

    name: str
    origin: str
    summary: str = ""
    missing: tuple[str, ...] = ()
    problem: str = ""


class Kind(Generic[T]):
    """The members of one plug-in kind, by name.

    Args:
        name: name of the kind in the singular; the entry-point group is `scitoolkit.<name>` with
            spaces as underscores.
        summary: purpose of a member, for `scitoolkit ls`.
        contract: the test suite that members inherit, `module:class`, "" if there is none.
        former: name of the kind in the last release, whose entry points are also read.
        renamed: {former name: settings with the present name} of members that became options of
            another one; stored configurations with former names stay readable.
        imports_torch: members import torch, so `doctor` describes them only on request.

    Example:
        >>> shapes = Kind[type]("shape", "a body")
        >>> @shapes.register("ball")
        ... class Ball: ...
        >>> shapes.get("ball").__name__
        'Ball'
        >>> shapes.get("bal")
        Traceback (most recent call last):
            ...
        scitoolkit.core.errors.ConfigError: unknown shape 'bal'. Allowed: ball. Fix: ball
    """

    def __init__(
        self,
        name: str,
        summary: str = "",
        *,
        contract: str = "",
        former: str = "",
        renamed: Mapping[str, Mapping[str, Any]] | None = None,
        imports_torch: bool = False,
    ) -> None:
        self.name: str = name
        self.summary: str = summary
        self.contract: str = contract
        self.imports_torch: bool = imports_torch
        self.renamed: Mapping[str, Mapping[str, Any]] = renamed or {}
        self.group: str = GROUP + name.replace(" ", "_")
        self._former_group: str = GROUP + former.replace(" ", "_") if former else ""
        self._registered: dict[str, T] = {}
        self._loaded: dict[EntryPoint, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds a member under `name`; entry points need no decorator."""

        def add(member: T) -> T:
            present = self._registered.get(name)
            if present is not None and present is not member:
                raise ValueError(f"{self.name} {name!r} is registered twice")
            self._registered[name] = member
            return member

        return add

    def unregister(self, name: str) -> None:
        """Remove a member that was added by `register`."""
        self._registered.pop(name, None)

    def names(self) -> list[str]:
        """Return all known names, sorted, without importing any member."""
        return sorted({*self._registered, *self._entry_points()})

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        """Return whether a member of that name is known."""
        return name in self._registered or name in self._entry_points()

    def get(self, name: str) -> T:
        """Return the member called `name`, importing it on first use.

        Raises:
            ConfigError: unknown name; the message lists all names and the nearest one.
            BackendError: the package that provides the member cannot be imported.
        """
        if name in self._registered:
            return self._registered[name]
        entry = self._entry_points().get(name)
        if entry is None:
            names = self.names()
            raise ConfigError(
                f"unknown {self.name} {name!r}",
                allowed=", ".join(names) or "nothing; none is installed",
                fix=nearest_name(name, names) or "",
            )
        if entry in self._loaded:
            return self._loaded[entry]
        try:
            member = cast(T, entry.load())
        except (ImportError, AttributeError, SyntaxError, TypeError, ValueError) as error:
            raise BackendError(
                f"{self.name} {name!r} cannot be loaded ({error})",
                where=f"entry point {entry.value} of {_origin(entry)}",
                fix=f"install the missing package, or uninstall {_origin(entry)}",
            ) from error
        return self._loaded.setdefault(entry, member)

    def member(self, name: str) -> Member:
        """Return the description of one member, including why it cannot be used."""
        entry = self._entry_points().get(name)
        origin = _origin(entry) if entry else getattr(self._registered[name], "__module__", "")
        try:
            loaded = self.get(name)
        except BackendError as error:
            return Member(name, origin, problem=str(error))
        missing = tuple(p for p in getattr(loaded, "requires", ()) if not _importable(p))
        problem = f"needs {', '.join(missing)}" if missing else _problem(loaded)
        return Member(name, origin, _summary(loaded), missing, problem)

    def members(self) -> list[Member]:
        """Return the description of every member."""
        return [self.member(name) for name in self.names()]

    def _entry_points(self) -> dict[str, EntryPoint]:
        entries = {**_installed().get(self._former_group, {}), **_installed().get(self.group, {})}
        return {name: entry for name, entry in entries.items() if name not in self.renamed}

    def current(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings of a member under its present name.

        Example:
            >>> maps = Kind("map", renamed={"cubic": {"name": "power", "degree": 3}})
            >>> maps.current({"name": "cubic", "scale": 2.0})
            {'name': 'power', 'degree': 3, 'scale': 2.0}
        """
        present = self.renamed.get(str(settings.get("name")))
        if present is None:
            return dict(settings)
        return {**present, **{k: v for k, v in settings.items() if k != "name"}}


@dataclass(frozen=True)
class Choice:
    """Field annotation: the value is the configuration of one member of `kind`, selected by `name`.

    Members are looked up during validation, so members registered after the field was declared are
    accepted too. A string is short for `{name: string}`.

    Args:
        kind: the plug-in kind.
        words: strings that are accepted unchanged, such as "auto".

    Example:
        >>> from typing import Annotated
        >>> from pydantic import TypeAdapter
        >>> from scitoolkit.core.config import Config
        >>> codecs = Kind("test codec")
        >>> class Codec(Config):
        ...     name: str
        >>> field = TypeAdapter(Annotated[Codec, Choice(codecs)])
        >>> @codecs.register("zip")
        ... class Zip(Codec):
        ...     name: str = "zip"
        >>> field.validate_python({"name": "zip"})
        Zip(name='zip')
    """

    kind: Kind[Any]
    words: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        """Return the schema that validates with the member selected by `name`."""
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Return the JSON schema of a name or a member; each member is defined once."""
        names = core_schema.literal_schema([*self.words, *self.kind, *self.kind.renamed])
        members = {_reference(member): member for member in map(self.kind.get, self.kind)}
        entered = _entered.get()
        token = _entered.set(entered | members.keys())
        try:
            # The handler defines the parts of a union, and no schema that it is called with.
            choices = [
                core_schema.definition_reference_schema(ref)
                if ref in entered
                else {**member.__pydantic_core_schema__, "ref": ref}
                for ref, member in members.items()
            ]
            return cast(dict[str, Any], handler(core_schema.union_schema([names, *choices])))
        finally:
            _entered.reset(token)

    def _validate(self, value: Any) -> Any:
        names = self.kind.names()
        expected = ", ".join([*self.words, *names])
        if isinstance(value, str):
            if value in self.words:
                return str(value)
            value = {"name": str(value)}
        if isinstance(value, dict):
            value = self.kind.current(value)
            name = value.get("name", names[0] if len(names) == 1 else None)
        else:
            name = getattr(value, "name", None)
        if name is None:
            raise PydanticCustomError(
                "union_tag_not_found", "`name` is missing", {"expected_tags": expected}
            )
        if name not in self.kind:
            raise PydanticCustomError(
                "union_tag_invalid",
                "{tag} is not one of {expected_tags}",
                {"tag": str(name), "expected_tags": expected},
            )
        try:
            member = self.kind.get(str(name))
        except BackendError as error:
            raise PydanticCustomError(
                "value_error", "{text}", {"text": str(error).replace("{", "(").replace("}", ")")}
            ) from None
        return member.model_validate(value)


def _reference(member: Any) -> str:
    """Return the name under which pydantic defines the schema of a member."""
    return f"{member.__module__}.{member.__qualname__}:{id(member)}"


@cache
def _installed() -> dict[str, dict[str, EntryPoint]]:
    """Return the entry points of all scitoolkit groups; cached, because reading takes 50 ms."""
    groups: dict[str, dict[str, EntryPoint]] = {}
    seen: set[str] = set()
    for distribution in distributions():
        try:
            ours = [e for e in distribution.entry_points if e.group.startswith(GROUP)]
            name = distribution.name if ours else ""
        # A damaged file of another package must not end every command; what it raises is whatever
        # the standard library met first (UnicodeDecodeError, TypeError, AttributeError, OSError).
        except Exception as error:
            place = distribution.locate_file("")
            log.warning("plug-ins of a package in %s are not read: %s", place, error)
            continue
        if not ours or name in seen:  # seen: another copy, later on sys.path
            continue
        seen.add(name)
        for entry in ours:
            groups.setdefault(entry.group, {}).setdefault(entry.name, entry)
    return groups


def refresh() -> None:
    """Read the entry points again after a package was installed while this process runs."""
    _installed.cache_clear()


def kinds() -> dict[str, Kind[Any]]:
    """Return every plug-in kind by name, from the entry-point group `scitoolkit.kind`.

    Example:
        >>> kinds()["optimizer"].get("adamw").uses_closure
        False
    """
    entries = _installed().get(GROUP + "kind", {})
    return {name.replace("_", " "): entries[name].load() for name in sorted(entries)}


def kind(name: str) -> Kind[Any]:
    """Return one kind by name without importing the others.

    Raises:
        ConfigError: there is no such kind.
    """
    entry = _installed().get(GROUP + "kind", {}).get(name.replace(" ", "_"))
    if entry is None:
        names = kind_names()
        raise ConfigError(
            f"unknown kind {name!r}", allowed=", ".join(names), fix=nearest_name(name, names) or ""
        )
    loaded: Kind[Any] = entry.load()
    return loaded


def member_names(kind_name: str) -> list[str]:
    """Return the names of a kind's entry points without importing anything."""
    return sorted(_installed().get(GROUP + kind_name.replace(" ", "_"), {}))


def kind_names() -> list[str]:
    """Return the names of all kinds without importing them."""
    return sorted(name.replace("_", " ") for name in _installed().get(GROUP + "kind", {}))


def _origin(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value


def _summary(member: Any) -> str:
    text = inspect.getdoc(member) or "" if callable(member) else ""
    return text.partition("\n")[0]


def _problem(member: Any) -> str:
    """Return the result of the member's `unavailable()`, "" if it has no such method."""
    reason = getattr(member, "unavailable", None)
    return str(reason() or "") if callable(reason) else ""


def _importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False

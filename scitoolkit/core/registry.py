"""Names that a configuration may use, and the code each one stands for.

An entry is an object or a string "package.module:attribute" that is imported only when asked for,
so that listing what exists costs no import. Other packages add entries through the entry-point
group `scitoolkit.<kind>` and never have to touch our code.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import reduce
from importlib.metadata import entry_points
from operator import or_
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping of names to components of one kind.

    Args:
        kind: what the entries are, in the singular; used in messages and as entry-point group.

    Example:
        >>> shapes = Registry[type]("shape")
        >>> @shapes.register("ball")
        ... class Ball: ...
        >>> shapes.get("ball").__name__
        'Ball'
        >>> shapes.get("bal")
        Traceback (most recent call last):
            ...
        scitoolkit.core.errors.ConfigError: unknown shape 'bal'. Allowed: ball. Fix: ball
    """

    def __init__(self, kind: str, lazy: dict[str, str] | None = None) -> None:
        self.kind = kind
        self._entries: dict[str, T | str] = dict(lazy or {})
        self._plugins_seen = False

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds what it decorates under `name`."""

        def add(entry: T) -> T:
            if name in self._entries and not isinstance(self._entries[name], str):
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return add

    def names(self) -> list[str]:
        """Return all known names, sorted, plug-ins included."""
        if not self._plugins_seen:
            for entry in entry_points(group=f"scitoolkit.{self.kind}"):
                self._entries.setdefault(entry.name, entry.value)
            self._plugins_seen = True
        return sorted(self._entries)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.names())

    def get(self, name: str) -> T:
        """Return the component called `name`.

        Raises:
            ConfigError: no such name; the message lists all and the nearest.
        """
        known = self.names()
        if name not in self._entries:
            raise ConfigError(
                f"unknown {self.kind} {name!r}",
                allowed=", ".join(known),
                fix=nearest_name(name, known) or "",
            )
        entry: Any = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(importlib.import_module(module), attribute)
        return entry

    def union(self) -> Any:
        """Return the config type that accepts any registered config class, picked by `name:`."""
        members = [self.get(name) for name in self.names()]
        if len(members) == 1:
            return members[0]
        return Annotated[reduce(or_, members), Field(discriminator="name")]

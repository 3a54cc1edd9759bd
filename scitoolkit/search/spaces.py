"""Spaces by name: `spaces.pod_lstm`, `spaces.get("pod_lstm")`, or `space: pod_lstm` in a file.

A domain describes its spaces as plain data and enters them under the entry-point group
`scitoolkit.space`; so can any other package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scitoolkit.core.plugins import Kind
from scitoolkit.search.space import Space

described: Kind[Mapping[str, Any]] = Kind("space", "choices that a search varies")
names: Callable[[], list[str]] = described.names


def get(name: str) -> Space:
    """Return the space called `name`.

    Raises:
        ConfigError: there is none; the message lists all.

    Example:
        >>> get("pod_lstm").size
        8605184
    """
    return Space(described.get(name))


def description(name: str) -> Mapping[str, Any]:
    """Return the plain data that describes a space."""
    return described.get(name)


def __getattr__(name: str) -> Space:
    """Return a space as an attribute of this module."""
    if name.startswith("_") or name not in names():
        raise AttributeError(f"no space {name!r}; there are {', '.join(names())}")
    return get(name)

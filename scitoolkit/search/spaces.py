"""Registered search spaces: `spaces.pod_lstm`, `spaces.get("pod_lstm")` or `space: pod_lstm`.

Spaces are plain data in the entry-point group `scitoolkit.space`, to which any package can add.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scitoolkit.core.plugins import Kind
from scitoolkit.search.space import Space

described: Kind[Mapping[str, Any]] = Kind(
    "space", "choices that a search varies", contract="scitoolkit.testing:SpaceContract"
)
names: Callable[[], list[str]] = described.names


def get(name: str) -> Space:
    """Return the space registered as `name`.

    Raises:
        ConfigError: no space has that name; the message lists all names.

    Example:
        >>> get("pod_lstm").size
        8605184
    """
    return Space(described.get(name))


def description(name: str) -> Mapping[str, Any]:
    """Return the description of a registered space: parameters as plain data, by name."""
    return described.get(name)


def __getattr__(name: str) -> Space:
    """Return a registered space as an attribute of this module."""
    if name.startswith("_") or name not in names():
        raise AttributeError(f"no space {name!r}; there are {', '.join(names())}")
    return get(name)

"""Safe YAML reader: plain values, the line number of every key, and limits on size and depth.

Anchors, aliases and merge keys (`<<: *base`) are supported. A file that is too large, nested too
deeply, refers to itself or expands excessively through aliases is rejected while it is parsed,
within milliseconds.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name

MAX_BYTES, MAX_DEPTH, MAX_VALUES = 1 << 20, 40, 50_000
_STANDARD = "tag:yaml.org,2002:"
_MERGE = f"{_STANDARD}merge"


class LocatedStr(str):
    """A string with the folder against which it is resolved if it is a relative path."""

    base: Path

    def __new__(cls, value: str, base: Path) -> LocatedStr:
        """Return `value` carrying `base`."""
        self = super().__new__(cls, value)
        self.base = base
        return self

    def __getnewargs__(self) -> tuple[str, Path]:  # type: ignore[override]
        """Return the arguments of `__new__`, for copies and pickles."""
        return str(self), self.base


@dataclass
class Parsed:
    """Value of a YAML text and the line number of every dotted key."""

    value: Any
    lines: dict[str, int] = field(default_factory=dict)


def read_yaml(path: Path) -> Parsed:
    """Read a YAML file.

    Raises:
        ConfigError: it is missing, unreadable, not YAML, or exceeds the limits of this module.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        siblings = [p.name for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        near = nearest_name(path.name, siblings)
        raise ConfigError(
            "no such file",
            where=str(path),
            fix=f"did you mean {path.parent / near}?"
            if near
            else f"scitoolkit init TASK FILES -o {path}, or scitoolkit ls workflows",
        ) from None
    except OSError as error:
        raise ConfigError(
            f"cannot be read ({error})", where=str(path), fix="a readable file"
        ) from None
    return parse_yaml(_decoded(content, path), path.resolve().parent, str(path))


def _decoded(content: bytes, path: Path) -> str:
    """Return the text of a file; a user often names the data instead of their configuration.

    Raises:
        ConfigError: it is no text, or a text in another encoding.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        name = shlex.quote(str(path))
        if b"\0" in content:
            raise ConfigError(
                "a data file, not a configuration",
                where=str(path),
                allowed="YAML",
                fix=f"scitoolkit init TASK {name}",
            ) from None
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"the byte 0x{content[error.start]:02x} is not UTF-8",
            where=f"{path}:{line}",
            fix=f"iconv -f latin1 -t utf-8 {name}",
        ) from None


def parse_yaml(text: str, base: Path, where: str) -> Parsed:
    """Parse a YAML text.

    Args:
        text: one YAML document.
        base: folder against which relative paths are resolved, see `LocatedStr`.
        where: name of the text in messages.

    Raises:
        ConfigError: it is not YAML, or exceeds the limits of this module.

    Example:
        >>> parse_yaml("a: &x {b: 1, c: 2}\\nd: {<<: *x, c: 3}", Path(), "text").value["d"]
        {'b': 1, 'c': 3}
    """
    if len(text) > MAX_BYTES:
        raise ConfigError("too large for a configuration", where=where, allowed="1 MiB")
    parsed = Parsed(None)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            parsed.value = _construct(loader, node, "", parsed.lines, base)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"not valid YAML ({_one_line(error)})",
            where=where,
            fix="quote texts with : # [ { or a leading *, and indent with spaces",
        ) from None
    return parsed


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads 1e-3 as a number (YAML 1.2), and bounds depth and size."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth, self._values = 0, 0
        self._sizes: dict[int, int] = {}  # values of each finished node, aliases expanded

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node and count its values, aliases expanded."""
        mark, alias = self.peek_event().start_mark, self.check_event(yaml.AliasEvent)
        before = self._values
        self._depth += 1
        self._bound(self._depth, mark)
        node = super().compose_node(parent, index)
        if alias and id(node) not in self._sizes:
            raise _refusal("an alias refers to an enclosing section", mark)
        self._depth -= 1
        self._values += self._sizes[id(node)] if alias else 1
        self._sizes.setdefault(id(node), self._values - before)
        if self._values > MAX_VALUES:
            raise _refusal(f"more than {MAX_VALUES} values, aliases expanded", mark)
        return node

    def fetch_flow_collection_start(self, token: Any) -> None:
        """Limit nested brackets in the scanner, which looks 1024 characters ahead."""
        self._bound(self.flow_level, self.get_mark())
        super().fetch_flow_collection_start(token)

    @staticmethod
    def _bound(depth: int, mark: Any) -> None:
        if depth > MAX_DEPTH:
            raise _refusal(f"nested more than {MAX_DEPTH} levels deep", mark)


_Loader.add_implicit_resolver(
    f"{_STANDARD}float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def _construct(
    loader: _Loader, node: yaml.Node, key: str, lines: dict[str, int], base: Path
) -> Any:
    """Build plain values from YAML nodes and record the line number of every key."""
    if not node.tag.startswith(_STANDARD) or node.tag.count("/"):
        raise _refusal(f"tag {node.tag!r} is not allowed", node.start_mark)
    if isinstance(node, yaml.MappingNode):
        out: dict[str, Any] = {}
        for name, (key_node, value_node) in _entries(node, key).items():
            dotted = f"{key}.{name}" if key else name
            lines[dotted] = key_node.start_mark.line + 1
            out[name] = _construct(loader, value_node, dotted, lines, base)
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_construct(loader, item, key, lines, base) for item in node.value]
    try:
        value = loader.construct_object(node, deep=True)
    except ValueError as error:  # 2020-13-45 looks like a date
        raise _refusal(f"{key}: {_one_line(error)}", node.start_mark) from None
    return LocatedStr(value, base) if isinstance(value, str) else value


def _entries(node: yaml.MappingNode, key: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    """Return the key and value nodes of a mapping by name; explicit keys override merged ones."""
    merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    for key_node, value_node in node.value:
        if key_node.tag == _MERGE:
            for name, pair in _merged(value_node, key):
                merged.setdefault(name, pair)
            continue
        if not isinstance(key_node, yaml.ScalarNode):
            raise _refusal("a key must be a scalar", key_node.start_mark)
        name = str(key_node.value)
        if name in own:
            dotted = f"{key}.{name}" if key else name
            raise _refusal(f"key {dotted!r} is written twice", key_node.start_mark)
        own[name] = (key_node, value_node)
    return {**merged, **own}


def _merged(value: yaml.Node, key: str) -> list[tuple[str, tuple[yaml.Node, yaml.Node]]]:
    """Return the entries of the sections under a merge key; the first of two equal keys wins."""
    entries: list[tuple[str, tuple[yaml.Node, yaml.Node]]] = []
    for section in value.value if isinstance(value, yaml.SequenceNode) else [value]:
        if not isinstance(section, yaml.MappingNode):
            raise _refusal("`<<` merges sections only", section.start_mark)
        entries += _entries(section, key).items()
    return entries


def _refusal(text: str, mark: Any) -> yaml.YAMLError:
    return yaml.YAMLError(f"line {mark.line + 1}: {text}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

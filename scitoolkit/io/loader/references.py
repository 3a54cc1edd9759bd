"""References of kerchunk and VirtualiZarr: which range of which file or URL is a chunk.

Source: kerchunk's specification, version 1: templates and generated references are written out
here, by Jinja2 in a sandbox, as the specification has them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import DataError, missing_extra

_KEYS = ("version", "templates", "gen", "refs")
_OF_GENERATED = ("key", "url", "offset", "length", "dimensions")
_MOST_GENERATED = 10**8


def read_references(path: Path) -> dict[str, Any]:
    """Return {key: text, or [URL], or [URL, offset, length]} of a JSON file of references.

    Raises:
        DataError: no JSON, another version, a template that is not defined, or a rule that
            generates no complete references.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.json"
        >>> rules = {"templates": {"a": "s3://b"}, "refs": {"u": ["{{a}}/c"]}}
        >>> _ = path.write_text(json.dumps({"version": 1, **rules}))
        >>> read_references(path)
        {'u': ['s3://b/c']}
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _wrong(path, "", f"no references that can be read ({error})") from None
    if not isinstance(stored, dict):
        raise _wrong(path, "", "no references that can be read (no JSON object)")
    version = stored.get("version")
    if version is None:
        rules = [key for key in ("templates", "gen") if "refs" in stored and key in stored]
        if rules:  # would be read as they are, as addresses of no file
            raise _wrong(path, rules[0], "beside no version of the specification", "version: 1")
        entries = stored.get("refs", stored)
    elif version == 1:
        unknown = [key for key in stored if key not in _KEYS]
        if unknown:
            raise _wrong(path, unknown[0], "not a part of references", ", ".join(_KEYS))
        entries = stored.get("refs", {})
    else:
        raise _wrong(path, "version", f"{version!r} of the specification is not read", "1, or none")
    if not isinstance(entries, Mapping):
        raise _wrong(path, "refs", "no JSON object")
    if version is None:
        return {key: _entry(path, key, value) for key, value in entries.items()}
    texts = _Texts(path, stored.get("templates", {}))
    written = {
        key: _entry(path, key, _rendered(texts, key, value)) for key, value in entries.items()
    }
    for where, key, entry in _generated(path, texts, stored.get("gen", [])):
        if written.setdefault(key, entry) != entry:
            raise _wrong(path, where, f"{key} refers to {written[key]} and to {entry}", "one place")
    return written


def protocols_of(references: Mapping[str, Any]) -> list[str | None]:
    """Return the protocols of the places that references name; None for paths.

    Example:
        >>> protocols_of({"a": ["s3://b/c", 0, 1], "b": ["/c", 0, 1], "c": "text"})
        ['s3', None]
    """
    places = (value[0] for value in references.values() if isinstance(value, list))
    return list(dict.fromkeys(_protocol(str(place)) for place in places))


class Places(dict[Any, Any]):
    """File systems of fsspec by protocol, opened when one is asked for; None is this machine's."""

    def __missing__(self, protocol: str | None) -> Any:
        import fsspec
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

        name = protocol or "file"
        try:
            kind = fsspec.get_filesystem_class(name)
            if kind.async_impl:
                files = kind(asynchronous=True)
            else:
                files = AsyncFileSystemWrapper(kind(), asynchronous=True)
        except ImportError as error:
            extra = "s3" if name in ("s3", "s3a") else "remote"
            raise missing_extra(str(error.name or name), extra, f"reading {name}://") from None
        self[protocol] = files
        return files


def _protocol(place: str) -> str | None:
    protocol, is_url, _ = place.partition("://")
    return protocol if is_url else None


class _Template:
    """Template with variables, which references call.

    Args:
        name: of the template.
        written: returns its text for {variable: value}.
    """

    def __init__(self, name: str, written: Callable[[Mapping[str, Any]], str]) -> None:
        self.name, self._written = name, written

    def __call__(self, **values: Any) -> str:
        """Return the text for values of the variables."""
        return self._written(values)

    def __str__(self) -> str:
        """Refuse to be a text: without its variables a template would be a wrong address."""
        raise TypeError(f"{self.name} has variables, which {{{{{self.name}(NAME=VALUE)}}}} states")


class _Texts:
    """Templates of a file of references.

    Args:
        path: of the file.
        templates: {name: text, or text with variables that its users name}.
    """

    def __init__(self, path: Path, templates: object) -> None:
        from jinja2 import StrictUndefined
        from jinja2.sandbox import SandboxedEnvironment

        self.path = path
        # Keys and addresses keep a line feed at their end, which Jinja drops.
        self._rules = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
        self._compiled: dict[str, Any] = {}
        if not isinstance(templates, Mapping) or not all(
            isinstance(text, str) for text in templates.values()
        ):
            raise _wrong(path, "templates", "no JSON object of texts")
        self.names: dict[str, Any] = {
            name: self._function(name, text) if "{{" in text else text
            for name, text in templates.items()
        }

    def _function(self, name: str, text: str) -> _Template:
        return _Template(name, lambda values: self.render(f"templates.{name}", text, values))

    def render(self, where: str, text: str, values: Mapping[str, Any]) -> str:
        """Return a text with its variables replaced.

        Raises:
            DataError: a variable that is not defined, or no template.
        """
        if "{" not in text:
            return text
        from jinja2 import TemplateError

        try:
            if text not in self._compiled:
                self._compiled[text] = self._rules.from_string(text)
            return str(self._compiled[text].render({**self.names, **values}))
        except (
            *(TemplateError, TypeError, ValueError, ArithmeticError),
            *(RecursionError, MemoryError),
        ) as error:
            raise _wrong(
                self.path, where, f"{text!r} cannot be written out ({error})", _names(self.names)
            ) from None


def _names(templates: Mapping[str, Any]) -> str:
    return f"templates: {', '.join(templates) or 'none'}"


def _rendered(texts: _Texts, key: str, value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], str) and "{{" in value[0]:
        return [texts.render(f"refs.{key}", value[0], {}), *value[1:]]
    return value


def _entry(path: Path, key: str, value: Any) -> Any:
    """Return one reference; objects are metadata, which stores hold as text."""
    if isinstance(value, Mapping):
        return json.dumps(value)
    place = isinstance(value, list) and len(value) in (1, 3) and isinstance(value[0], str)
    if isinstance(value, str) or (place and all(_is_count(number) for number in value[1:])):
        return value
    raise _wrong(
        path,
        f"refs.{key}",
        f"{str(value)[:80]} is no reference",
        "a text, [URL], [URL, offset, length]",
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _generated(path: Path, texts: _Texts, rules: Any) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield (rule, key, reference) of the references that rules of `gen` generate."""
    if not isinstance(rules, list):
        raise _wrong(path, "gen", "no JSON list")
    for number, rule in enumerate(rules):
        where = f"gen[{number}]"
        if not isinstance(rule, Mapping) or not {"key", "url", "dimensions"} <= set(rule):
            raise _wrong(path, where, "no rule", ", ".join(_OF_GENERATED))
        unknown = [key for key in rule if key not in _OF_GENERATED]
        if unknown:
            raise _wrong(
                path, f"{where}.{unknown[0]}", "no part of a rule", ", ".join(_OF_GENERATED)
            )
        if ("offset" in rule) != ("length" in rule):
            raise _wrong(path, where, "only one of offset and length", "both, or none")
        numbers = _dimensions(path, where, rule["dimensions"])
        for values in itertools.product(*numbers.values()):
            named = dict(zip(numbers, values, strict=True))
            key, url = (
                texts.render(f"{where}.{part}", str(rule[part]), named) for part in ("key", "url")
            )
            entry: list[Any] = [url]
            for part in ("offset", "length") if "offset" in rule else ():
                text = texts.render(f"{where}.{part}", str(rule[part]), named)
                if not text.strip().isdecimal():
                    raise _wrong(path, f"{where}.{part}", f"{text!r} is no number of bytes")
                entry.append(int(text))
            yield where, key, entry


def _dimensions(path: Path, where: str, dimensions: Any) -> dict[str, Sequence[Any]]:
    """Return the values of each variable of a rule: a list, or start, stop and step."""
    numbers: dict[str, Sequence[Any]] = {}
    for name, values in dimensions.items() if isinstance(dimensions, Mapping) else ():
        if isinstance(values, list):
            numbers[name] = values
            continue
        try:
            numbers[name] = range(values.get("start", 0), values["stop"], values.get("step", 1))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise _wrong(
                path, f"{where}.dimensions.{name}", "no values", "a list, or start, stop and step"
            ) from None
    # Counted first: one short rule may stand for more references than fit into memory.
    count = 1
    for values in numbers.values():
        try:
            count *= len(values)
        except OverflowError:  # of a range
            count = _MOST_GENERATED + 1
            break
    if not numbers or count > _MOST_GENERATED:
        raise _wrong(
            path, f"{where}.dimensions", f"{count if numbers else 0} references", "1 to 10^8"
        )
    return numbers


def _wrong(path: Path, key: str, problem: str, allowed: str = "") -> DataError:
    return DataError(
        problem,
        where=f"{path}: {key}" if key else str(path),
        allowed=allowed,
        fix="write the references again, with kerchunk or VirtualiZarr",
    )

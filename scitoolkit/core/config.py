"""Configuration: pydantic models read from YAML, with every error of a file reported at once.

Precedence is defaults < file < `section.key=value` on the command line. There is no `_target_`
and no interpolation: `name:` selects a component from a registry, and the resolved config that a
run saves is itself a valid input. Relative paths are resolved against the folder of the file that
holds them, and against the current folder when given on the command line.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from scitoolkit.core.content import shipped_path
from scitoolkit.core.docstrings import attribute_texts, summary
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.core.plugins import Choice
from scitoolkit.core.remote import url_of
from scitoolkit.core.suggest import SAME_MEANING, nearest_key, nearest_name
from scitoolkit.core.yaml_file import LocatedStr, parse_yaml, read_yaml

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

ANCHORS = "x-"
"""Prefix of top-level keys that only define YAML anchors; they are dropped after parsing."""

COMMAND_LINE = "command line"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
C = TypeVar("C", bound="Config")
log: Logger = get_logger(__name__)


class _ConfigMeta(ModelMetaclass):
    """Metaclass that raises `ConfigProblems` for sections constructed in Python, as for files."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except ValidationError as error:
            raise ConfigProblems(
                list(_problems(error, Document(raw=dict(kwargs)), cls))  # type: ignore[arg-type]
            ) from None


class Config(BaseModel, metaclass=_ConfigMeta):
    """Base of every section of a configuration: frozen, keyword-only, no unknown keys.

    If the enclosing section sets a default for a nested section, keys that a file leaves out keep
    that default: defaults < file < override holds at every depth.

    Attributes:
        renamed: {former key: key}; a former key is accepted with a warning for one release. Dotted
            keys, relative to this section, move a key to another section. Subclasses extend it.
        requires: importable packages that the section needs regardless of its settings.

    Example:
        >>> class Training(Config):
        ...     epochs: int = 100
        ...     log_every: int = 50
        >>> class Job(Config):
        ...     training: Training = Training(epochs=200)
        >>> Job.model_validate({"training": {"log_every": 5}}).training
        Training(epochs=200, log_every=5)
    """

    renamed: ClassVar[Mapping[str, str]] = {}
    requires: ClassVar[tuple[str, ...]] = ()

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        protected_namespaces=(),
        arbitrary_types_allowed=False,
    )

    def required_packages(self) -> tuple[str, ...]:
        """Return the optional packages that these settings need; `validate` checks for them."""
        return self.requires

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        """Rename alternative keys and merge nested sections with the defaults of this section."""
        if not isinstance(data, Mapping):
            return data
        out = _with_our_keys(cls, data)
        for name, info in cls.model_fields.items():
            if isinstance(info.default, Config) and isinstance(out.get(name), Mapping):
                out[name] = _overlay(info.default, out[name])
        return out

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON schema with the texts of the docstring, which editors display."""
        reference = handler(schema)
        body = handler.resolve_ref_schema(reference)
        if about := summary(cls):
            body["description"] = about
        for name, text in attribute_texts(cls).items():
            if name in body.get("properties", {}):
                body["properties"][name].setdefault("description", text)
        return reference


def refuse_unused(section: Config, reason: str, *keys: str) -> None:
    """Raise ValueError for settings that another setting makes ineffective.

    To be called from a validator of `section`. Keys at their defaults are accepted, because a
    resolved configuration writes all keys.

    Args:
        section: the section that holds the keys.
        reason: the setting that makes them ineffective.
        keys: fields of `section`.

    Raises:
        ValueError: one of them differs from its default.
    """
    fields = type(section).model_fields
    written = [
        k for k in keys if getattr(section, k) != fields[k].get_default(call_default_factory=True)
    ]
    if written:
        raise ValueError(f"{', '.join(written)}: not used with {reason}; leave out")


def _with_our_keys(schema: type[Config], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return `data` with former keys and other programs' keys renamed to those of the schema.

    Raises:
        ValueError: a setting is written under two names.
    """
    out = dict(data)
    for theirs, key in SAME_MEANING.items():
        fields = schema.model_fields
        if theirs not in out or theirs in fields or key not in fields:
            continue
        if not _put(out, [key], out.pop(theirs)):
            raise ValueError(f"{theirs!r} is another name of {key!r}: write one of them only")
        log.info("configuration key %r is read as %r", theirs, key)
    for former, key in _former_keys(schema).items():
        was_set, value = _taken(out, former.split("."))
        if not was_set:
            continue
        if not _put(out, key.split("."), value):
            raise ValueError(f"{former!r} is the former name of {key!r}: write {key!r} only")
        log.warning("configuration key %r is now called %r", former, key)
    return out


def _former_keys(schema: type[Config]) -> dict[str, str]:
    """Return {former key: key} of a section and of the classes that it derives from."""
    return {
        former: key
        for base in reversed(schema.__mro__)
        for former, key in vars(base).get("renamed", {}).items()
    }


def _taken(tree: dict[str, Any], path: list[str]) -> tuple[bool, Any]:
    """Remove the value at `path`; return whether it existed, and the value."""
    head, *rest = path
    if head not in tree:
        return False, None
    if not rest:
        return True, tree.pop(head)
    if not isinstance(tree[head], Mapping):
        return False, None
    tree[head] = dict(tree[head])  # leave the caller's mapping unchanged
    return _taken(tree[head], rest)


def _put(tree: dict[str, Any], path: list[str], value: Any) -> bool:
    """Write `value` at `path`; return False if the path already holds a value."""
    *parents, leaf = path
    for parent in parents:
        below = tree.get(parent, {})
        if not isinstance(below, Mapping):
            return False
        tree[parent] = dict(below)
        tree = tree[parent]
    if leaf in tree:
        return False
    tree[leaf] = value
    return True


def _overlay(default: Config, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `given` over the keys set in `default`, unless `given` selects another member."""
    name = getattr(default, "name", None)
    if changes.get("name", name) != name:
        return dict(changes)
    merged = {key: getattr(default, key) for key in default.model_fields_set}
    if name is not None:
        merged["name"] = name
    changes = _with_our_keys(type(default), changes)
    for key, value in changes.items():
        below = merged.get(key)
        inner = isinstance(below, Config) and isinstance(value, Mapping)
        merged[key] = _overlay(below, value) if inner else value  # type: ignore[arg-type]
    return merged


def resolve_path(value: Any) -> Any:
    """Return the path of an input that a string in a configuration refers to.

    URLs stay as they are: what is local of them belongs to no run.
    """
    if isinstance(value, str) and url_of(value):
        return Path(value)
    if isinstance(value, LocatedStr):
        return shipped_path(Path(value).expanduser(), value.base).resolve()
    if isinstance(value, str):
        return shipped_path(Path(value).expanduser())
    return value


def _input_text(value: Any) -> Any:
    """Return a path as text, because pydantic's JSON mode accepts strings only."""
    resolved = resolve_path(value)
    return str(resolved) if isinstance(resolved, Path) else resolved


def _output_text(value: Any) -> Any:
    if isinstance(value, LocatedStr):
        return str((value.base / Path(value).expanduser()).resolve())
    return str(Path(value).expanduser()) if isinstance(value, str | Path) else value


_INPUT = BeforeValidator(_input_text)
DataPath = Annotated[Path, _INPUT]
"""A path of an input; relative ones are resolved against the file that holds them.

One such as datasets/cora/cora.npz that does not exist there is the shipped file.
"""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, (str, Path)) else value


DataPaths = Annotated[list[DataPath], BeforeValidator(_listed)]
"""Paths of inputs; one may be written without a list."""


def names_an_input(info: FieldInfo) -> bool:
    """Return whether a field holds a `DataPath`, or a list or mapping of them."""
    return _INPUT in info.metadata or _holds_input(info.annotation)


def _holds_input(annotation: Any) -> bool:
    return any(part is _INPUT or _holds_input(part) for part in typing.get_args(annotation))


OutputPath = Annotated[Path, BeforeValidator(_output_text)]
"""A path to write to; relative ones are resolved against the file that holds them."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration: `where: key: message`, and what to write instead."""

    key: str
    message: str
    where: str = ""
    fix: str = ""

    def __str__(self) -> str:
        """Return the one line shown to the user."""
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


class ConfigProblems(ConfigError, ValueError):
    """All problems of one configuration, a line each.

    Also a `ValueError`, so that pydantic reports errors of sections built inside a validator.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        fixes = dict.fromkeys(problem.fix for problem in self.problems if problem.fix)
        super().__init__("\n".join(map(str, problems)), fix=" ".join(fixes))


@dataclass
class Document:
    """A configuration before validation: raw values, and the file and line of each key."""

    raw: dict[str, Any]
    path: Path | None = None
    origins: dict[str, str] = field(default_factory=dict)

    def where(self, key: str) -> str:
        """Return `file:line` or `command line` of a dotted key, or of its nearest parent."""
        while key:
            if key in self.origins:
                return self.origins[key]
            key = key.rpartition(".")[0]
        return str(self.path) if self.path else ""

    def override(self, text: str) -> None:
        """Apply one setting of the command line: `section.key=value`, or `~section.key`.

        A value is YAML. `~` removes a key, and the setting is then its default. A member of a kind
        that is written as its name, `model: fno`, becomes a section when a key of it is set.

        Raises:
            ConfigError: the text is no setting, a parent of the key is not a section, or a key to
                remove does not exist.
        """
        if text.startswith("~"):
            self._remove(text)
            return
        dotted, sign, value_text = text.partition("=")
        if not sign or not dotted or any(not part for part in dotted.split(".")):
            raise ConfigError(
                f"{text!r} is not a setting",
                where=COMMAND_LINE,
                allowed="section.key=value, ~section.key",
            )
        value = parse_yaml(value_text, Path.cwd(), f"{COMMAND_LINE}: {dotted}").value
        section: Any = self.raw
        *parents, leaf = dotted.split(".")
        for depth, part in enumerate(parents):
            below = section.setdefault(part, {})
            if isinstance(below, str) and _NAME.fullmatch(below):
                section[part] = {"name": below}
            section = section[part]
            if not isinstance(section, dict):
                raise ConfigError(
                    f"{dotted!r}: {'.'.join(parents[: depth + 1])!r} is a value, not a section",
                    where=COMMAND_LINE,
                    fix=f"{'.'.join(parents[: depth + 1])}=VALUE",
                )
        section[leaf] = value
        self.origins[dotted] = COMMAND_LINE

    def value(self, dotted: str) -> Any:
        """Return the value of a dotted key, None if it is not set."""
        section: Any = self.raw
        for part in dotted.split("."):
            section = section.get(part) if isinstance(section, dict) else None
        return section

    def _remove(self, text: str) -> None:
        parents, _, leaf = text[1:].rpartition(".")
        section = self.value(parents) if parents else self.raw
        if not isinstance(section, dict) or leaf not in section:
            prefix = f"{parents}." if isinstance(section, dict) and parents else ""
            keys = section if isinstance(section, dict) else self.raw
            raise ConfigError(
                f"{text!r}: the configuration does not set this key",
                where=COMMAND_LINE,
                allowed=", ".join(f"~{prefix}{key}" for key in keys),
            )
        del section[leaf]

    def validate(self, schema: type[C]) -> C:
        """Validate the document against a schema and return the `schema` instance.

        Raises:
            ConfigProblems: with one line for every error of the document.
        """
        try:
            return schema.model_validate(self.raw)
        except ValidationError as error:
            raise ConfigProblems(list(_problems(error, self, schema))) from None


def read_document(path: Path | str | None, overrides: Sequence[str] = ()) -> Document:
    """Read a YAML file and apply `section.key=value` overrides.

    Args:
        path: YAML file, or None to start from nothing.
        overrides: settings that win over the file, in order; values are YAML, `key=` means null,
            `~key` removes a key.

    Returns:
        The document, not yet checked against a schema.

    Raises:
        ConfigError: the file is missing, not YAML, or an override is not `key=value`.

    Example:
        >>> read_document(None, ["training.epochs=3"]).raw
        {'training': {'epochs': 3}}
    """
    document = Document(raw={}) if path is None else _read_document(Path(path))
    for text in overrides:
        document.override(text)
    return document


def load_config(
    schema: type[C], path: Path | str | None = None, overrides: Sequence[str] = ()
) -> C:
    """Read, override and validate in one call; see `read_document` and `Document.validate`."""
    return read_document(path, overrides).validate(schema)


def dump_config(config: Config) -> str:
    """Return the YAML text of a resolved config, which is itself a valid input."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def config_keys(
    schema: type[BaseModel],
    prefix: str = "",
    above: tuple[type[BaseModel], ...] = (),
    *,
    only: Callable[[FieldInfo], bool] | None = None,
) -> Iterator[str]:
    """Yield every dotted key that `schema` accepts, sections included, union members merged.

    Recursive sections (a plug-in that contains other members of its kind) are entered once.

    Args:
        schema: class of the configuration.
        prefix: prefix of the yielded keys.
        above: the enclosing sections.
        only: predicate that selects fields; a selected section is yielded as a whole. All keys if
            None.

    Example:
        >>> from pydantic import create_model
        >>> optimizer = create_model("Optimizer", __base__=Config, lr=(float, 1.0))
        >>> training = create_model("Training", __base__=Config, optimizer=(optimizer, ...))
        >>> list(config_keys(training))
        ['optimizer', 'optimizer.lr']
    """
    seen: set[str] = set()
    for name, info in schema.model_fields.items():
        key = f"{prefix}{name}"
        if only is None or only(info):
            yield key
        if only is not None and only(info):
            continue
        for model in models_in(info.annotation, info.metadata):
            if model in above:
                continue
            for inner in config_keys(model, f"{key}.", (*above, schema), only=only):
                if inner not in seen:
                    seen.add(inner)
                    yield inner


def models_in(annotation: Any, metadata: Sequence[Any] = ()) -> Iterator[type[BaseModel]]:
    """Yield the sections that a field of this annotation may hold, members of a kind included."""
    choices = [choice for choice in metadata if isinstance(choice, Choice)]
    if choices:  # the annotation is only the members' base class
        yield from (choice.kind.get(name) for choice in choices for name in choice.kind)
        return
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        inner, *extra = typing.get_args(annotation)
        yield from models_in(inner, extra)
    elif origin in (typing.Union, types.UnionType):
        for member in typing.get_args(annotation):
            yield from models_in(member)


def _read_document(path: Path) -> Document:
    parsed = read_yaml(path)
    raw = {} if parsed.value is None else parsed.value
    if not isinstance(raw, dict):
        raise ConfigError(
            f"a configuration holds `key: value` lines, this file a {type(raw).__name__}",
            where=str(path),
            fix=f"scitoolkit init TASK FILES -o {path.stem}_new.yaml writes one",
        )
    for name in [name for name in raw if name.startswith(ANCHORS)]:
        del raw[name]
    return Document(raw, path, {key: f"{path}:{line}" for key, line in parsed.lines.items()})


def _problems(
    error: ValidationError, document: Document, schema: type[BaseModel]
) -> Iterator[Problem]:
    valid = list(config_keys(schema))
    seen: dict[str, list[str]] = {}
    fixes: dict[str, str] = {}
    members: set[str] = set()
    for item in error.errors(include_url=False):
        key = _dotted(item["loc"], document.raw, tagged="union_tag" in item["type"])
        message = _message(item, key, valid)
        if item["type"] == "extra_forbidden" and key in valid:
            member, keys = _other_members_key(item["loc"], document.raw, schema)
            if member:
                message = f"not a key of `{member}`" + ("" if member in members else keys)
            members.add(member)  # the keys that it has are told once
            fixes[key] = _whole_section(key, document)
        seen.setdefault(key, []).append(message)
    for key, messages in seen.items():
        # Each member of a plain union fails with a different message: report each once.
        yield Problem(
            key, " or ".join(dict.fromkeys(messages)), document.where(key), fixes.get(key, "")
        )


def _whole_section(key: str, document: Document) -> str:
    """Return the setting that selects a member without the keys that the file has for another.

    Only where the command line selected it: `model.name=fno` leaves the other keys of `model` as
    they are, `model=fno` replaces all of them.
    """
    section = key.rpartition(".")[0]
    while section and document.origins.get(f"{section}.name") != COMMAND_LINE:
        section = section.rpartition(".")[0]
    return f"{section}={document.value(f'{section}.name')}" if section else ""


def _other_members_key(
    loc: tuple[int | str, ...], raw: Any, schema: type[BaseModel]
) -> tuple[str, str]:
    """Return the selected member that lacks a key of another one, and the keys that it has.

    Two empty texts if the section holds no member of a plug-in kind.
    """
    section: type[BaseModel] | None = schema
    name = ""
    for part in loc[:-1]:
        info = section.model_fields.get(str(part)) if section else None
        raw = raw.get(part) if isinstance(raw, Mapping) else None
        choice = next((c for c in (info.metadata if info else ()) if isinstance(c, Choice)), None)
        if info is None or not isinstance(raw, Mapping):
            return "", ""
        name = str(raw.get("name", getattr(info.default, "name", ""))) if choice else ""
        section = choice.kind.get(name) if choice else next(models_in(info.annotation), None)
    if section is None or not name:
        return "", ""
    allowed = ", ".join(key for key in section.model_fields if key != "name")
    return name, f", which has {allowed or 'no keys'}"


def _dotted(loc: tuple[int | str, ...], raw: Any, *, tagged: bool) -> str:
    """Return the key as the user wrote it, without the tags pydantic adds for union members."""
    parts: list[str] = []
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        if isinstance(raw, Mapping):
            if part not in raw and not last and part == raw.get("name"):
                continue
            parts.append(str(part))
            raw = raw.get(part)
        elif isinstance(raw, list) and isinstance(part, int):
            parts.append(str(part))
            raw = raw[part] if part < len(raw) else None
        else:
            break
    if tagged and not isinstance(raw, str):
        parts.append("name")
    return ".".join(parts)


def _message(item: Any, key: str, valid: list[str]) -> str:
    kind, value, context = item["type"], item.get("input"), item.get("ctx", {})
    if kind == "extra_forbidden":
        section, _, leaf = key.rpartition(".")
        parts = [k for k in valid if k.startswith(f"{section}.") and k.endswith(".name")]
        if leaf == "name" and section in valid and parts:
            return f"unknown key: {section!r} is not chosen by name, its parts are: " + ", ".join(
                parts
            )
        near = nearest_key(key, valid)
        return f"unknown key (did you mean {near}?)" if near else "unknown key"
    if kind == "missing":
        return "missing, and it has no default"
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        tags = [t.strip(" '") for t in str(context.get("expected_tags", "")).split(",")]
        tag = context.get("tag")
        if tag is None:
            return f"missing; it selects one of {', '.join(tags)}"
        near = nearest_name(str(tag), tags)
        hint = f" (did you mean {near}?)" if near else ""
        return f"{tag!r} is not one of {', '.join(tags)}{hint}"
    if kind == "literal_error":
        expected = context.get("expected", "")
        near = nearest_name(str(value), re.findall(r"'([^']*)'", expected))
        return f"{value!r} is not {expected}" + (f" (did you mean {near}?)" if near else "")
    message = item["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return message if kind == "value_error" else f"{message}, got {_short(value)}"


def _short(value: Any) -> str:
    text = repr(str(value) if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:57] + "..."

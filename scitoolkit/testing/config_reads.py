"""Recorder of the settings that a run reads, to find settings that are accepted but ignored."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Iterator
from typing import Any, Literal
from unittest import mock

from scitoolkit.core.config import Config, Document


class ConfigReads:
    """The settings read so far: pairs of the class of a section and the name of a field."""

    def __init__(self) -> None:
        self.fields: set[tuple[type, str]] = set()
        self.paused = 0

    def unread(self, config: Config, prefix: str = "") -> Iterator[str]:
        """Yield the dotted key of every setting of `config` that was not read.

        Sections are entered, also in lists and mappings of sections.
        """
        for name, value in vars(config).items():
            sections = dict(_sections(value, f"{prefix}{name}"))
            for key, section in sections.items():
                yield from self.unread(section, f"{key}.")
            if sections or _picks_the_class(type(config), name):
                continue
            if not any((parent, name) in self.fields for parent in type(config).__mro__):
                yield f"{prefix}{name}"


def _picks_the_class(section: type[Config], name: str) -> bool:
    """Return whether a field has only one allowed value, like the `name` of a plug-in."""
    annotation = section.model_fields[name].annotation
    return typing.get_origin(annotation) is Literal and len(typing.get_args(annotation)) == 1


def _sections(value: Any, key: str) -> Iterator[tuple[str, Config]]:
    if isinstance(value, Config):
        yield key, value
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            yield from _sections(item, f"{key}.{position}")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _sections(item, f"{key}.{name}")


@contextlib.contextmanager
def record_reads() -> Iterator[ConfigReads]:
    """Record every configuration attribute that is read inside the context.

    Reads during validation and dumping do not count, because a key that only its own validator
    reads has no effect.

    Example:
        >>> from scitoolkit.core.job_config import JobConfig
        >>> config = JobConfig(domain="demo")
        >>> with record_reads() as reads:
        ...     _ = config.run.root, config.model_dump()
        >>> list(reads.unread(config))
        ['domain', 'workflow']
    """
    reads = ConfigReads()
    plain, validate, make = Config.__getattribute__, Document.validate, type(Config).__call__

    def read(section: Config, name: str) -> Any:
        if not reads.paused and not name.startswith("_"):
            reads.fields.add((type(section), name))
        return plain(section, name)

    def paused(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            reads.paused += 1
            try:
                return function(*arguments, **named)
            finally:
                reads.paused -= 1

        return call

    with (
        mock.patch.object(Config, "__getattribute__", read),
        mock.patch.object(Document, "validate", paused(validate)),
        mock.patch.object(type(Config), "__call__", paused(make)),
    ):
        yield reads

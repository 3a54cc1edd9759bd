"""Checks of a configuration beyond its schema: packages, memory, data files, domain checks."""

from __future__ import annotations

import glob
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from scitoolkit.core.config import Config, names_an_input
from scitoolkit.core.errors import EXIT_DATA, DataError, ScitoolkitError
from scitoolkit.core.job import Finding, Job, Searchable
from scitoolkit.core.memory import machine_memory, memory_errors

_WEIGHT_BYTES = 4


def findings(job: Job, config: Config, *, data: bool = True) -> Iterator[Finding]:
    """Yield the problems of a validated configuration, without training and without writing.

    Args:
        job: the job of the configuration's domain.
        config: a configuration that its schema accepts.
        data: whether missing inputs are errors. False where they are on another machine: they are
            then warnings, and the checks that need them are left out.
    """
    missing_files = list(_missing_files(config, "error" if data else "warning"))
    yield from missing_files
    packages = list(missing_packages(config))
    yield from packages
    if packages:
        return
    try:
        refuse_too_large(job, config)
        with memory_errors():
            yield from job.validate(config)
    except DataError as error:
        if not missing_files:
            yield Finding(str(error), exit_code=error.exit_code)
    except ScitoolkitError as error:
        yield Finding(str(error))


def cannot_start(config: Config) -> Iterator[Finding]:
    """Yield the reasons why a run cannot start on this machine: missing data or packages."""
    yield from _missing_files(config, "error")
    yield from missing_packages(config)


def missing_packages(config: Config) -> Iterator[Finding]:
    """Yield an error for every package that the configuration needs and that is not installed."""
    for key, section in sections(config):
        for package in section.required_packages():
            if importlib.util.find_spec(package) is None:
                yield Finding(f"needs the package {package!r}, which is not installed", key)


def refuse_too_large(job: Job, config: Any) -> None:
    """Raise ConfigError if the weights alone exceed the memory, for domains that can count them.

    Raises:
        ConfigError: the weights do not fit.
    """
    if not isinstance(job, Searchable):
        return
    with memory_errors():
        weights = job.search_cost(config).get("parameters", 0) * _WEIGHT_BYTES
        if weights > machine_memory():
            raise MemoryError(f"{weights:.0f} bytes")


def sections(config: Config, key: str = "") -> Iterator[tuple[str, Config]]:
    """Yield every section of a configuration with its dotted key, the top level first."""
    yield key, config
    for name, value in vars(config).items():
        for part in _parts(value):
            if isinstance(part, Config):
                yield from sections(part, f"{key}.{name}" if key else name)


def _parts(value: Any) -> Iterable[Any]:
    """Return the elements of a list or mapping; any other value as the only one."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else (value,)


def _missing_files(config: Config, level: Literal["error", "warning"]) -> Iterator[Finding]:
    """Yield a finding for every input, in any section, that does not exist and matches no file."""
    for key, section in sections(config):
        for name, info in type(section).model_fields.items():
            if not names_an_input(info):
                continue
            for path in _parts(getattr(section, name)):
                if isinstance(path, Path) and not (path.exists() or glob.glob(str(path))):
                    yield Finding(
                        f"no such file: {path}", f"{key}.{name}".lstrip("."), level, EXIT_DATA
                    )

"""Settings that may change when a run is resumed, marked in the metadata of their fields.

A setting is assumed to affect the numbers of a run unless its field is marked `FREE_ON_RESUME`, as
are the length of a run, its location and its logging. The command line, the trainer and the lookup
of the newest run of a configuration all compare `identity`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scitoolkit.core.config import config_keys


class FreeOnResume:
    """Type of the marker `FREE_ON_RESUME`."""

    def __repr__(self) -> str:
        """Return the name of the marker."""
        return "FREE_ON_RESUME"


FREE_ON_RESUME: Final = FreeOnResume()
"""Marks a field that may change on resume: `log_every: Annotated[int, FREE_ON_RESUME] = 50`.

On a section it applies to every key of the section.
"""


def identity(config: BaseModel) -> dict[str, Any]:
    """Return the settings that a resumed run must not change, as JSON values.

    Example:
        >>> from scitoolkit.core.job_config import JobConfig
        >>> identity(JobConfig(domain="graphs"))  # `run` is free
        {'domain': 'graphs', 'workflow': 'run'}
    """
    return _without_free(config, config.model_dump(mode="json"))


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return `key: old -> new` for every setting in which two identities differ.

    Example:
        >>> changed_settings({"training": {"lr": 0.1}}, {"training": {"lr": 0.2}})
        ['training.lr: 0.1 -> 0.2']
    """
    old, new = dict(_flat(before)), dict(_flat(now))
    return [
        f"{key}: {_short(old.get(key))} -> {_short(new.get(key))}"
        for key in dict.fromkeys([*new, *old])
        if old.get(key) != new.get(key)
    ]


def free_keys(schema: type[BaseModel]) -> Iterator[str]:
    """Yield the dotted keys of `schema` that may change on resume; sections count as one key."""
    return config_keys(schema, only=_is_free)


def _is_free(info: FieldInfo) -> bool:
    return any(isinstance(mark, FreeOnResume) for mark in info.metadata)


def _without_free(config: BaseModel, dumped: Mapping[str, Any]) -> dict[str, Any]:
    fixed = {}
    for name, info in type(config).model_fields.items():
        value = getattr(config, name)
        if not _is_free(info):
            section = isinstance(value, BaseModel)
            fixed[name] = _without_free(value, dumped[name]) if section else dumped[name]
    return fixed


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

"""Checks of a plug-in's registration and settings, which the contract suites share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.plugins import Kind


def check_registered(kind: Kind[Any], member: Any) -> None:
    """Assert that a kind lists the member's class under its name, with a summary and available.

    Args:
        kind: the plug-in kind.
        member: a member, or its class, with an attribute `name`.
    """
    assert kind.get(member.name) is (member if isinstance(member, type) else type(member))
    description = kind.member(member.name)
    assert description.summary
    assert not description.problem, description.problem


def check_settings(config: Config) -> None:
    """Assert that unknown keys are refused, and that settings are equal after a round trip."""
    with pytest.raises(ConfigError, match="no_such_key"):
        type(config)(**{**config.model_dump(), "no_such_key": 1})
    text = json.dumps(config.model_dump(mode="json"))
    assert type(config).model_validate(json.loads(text)) == config

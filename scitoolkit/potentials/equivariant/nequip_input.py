"""Refusal of a configuration file of `nequip-train`, with what its sections are called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scitoolkit.core.errors import ConfigError


def translate(raw: Mapping[str, Any]) -> None:
    """Return None for every file but those of `nequip-train`, whose classes are not translated.

    Raises:
        ConfigError: the file is one of `nequip-train`.

    Example:
        >>> translate({"domain": "potentials"})
    """
    if not (
        {"training_module", "trainer"} <= raw.keys() or {"r_max", "root", "run_name"} <= raw.keys()
    ):
        return
    raise ConfigError(
        f"a configuration of nequip-train, whose keys are not read: {', '.join(raw)}",
        allowed="domain: potentials with data.path, model.name=nequip, loss and training",
        fix="scitoolkit init potentials FRAMES.xyz -o train.yaml",
    )

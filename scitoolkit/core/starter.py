"""Helpers to write short commented configurations for a user's data (`scitoolkit init`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scitoolkit.core.errors import ConfigError


@dataclass(frozen=True)
class DataToStart:
    """The data for which `scitoolkit init` writes a configuration.

    Attributes:
        files: paths or patterns relative to the current folder.
        written: the same relative to the configuration file.
        dims: dim names for files that do not store any.
        sample_dim: the dim that counts samples, "" to read it from the files.
        level: the vertical coordinate to read, or `channels`; "" for all.
        member: the entry of the dim of simulations to read; "" for all.
    """

    files: Sequence[str]
    written: Sequence[str]
    dims: Sequence[str] = ()
    sample_dim: str = ""
    level: str = ""
    member: str = ""

    @property
    def path(self) -> str | list[str]:
        """The value of `data.path`."""
        return self.written[0] if len(self.written) == 1 else list(self.written)

    @property
    def one(self) -> Path:
        """The only file.

        Raises:
            ConfigError: there are several.
        """
        if len(self.files) > 1:
            raise ConfigError(f"{len(self.files)} files given", allowed="one file")
        return Path(self.files[0])


class CommentedLines:
    """Builder of YAML text with trailing comments.

    Example:
        >>> lines = CommentedLines("heat.h5: 3 simulations")
        >>> lines.section("data", path="heat.h5", inputs=["u"])
        >>> lines.comment("boundary: {x: circular}", "if x is periodic")
        >>> print(lines.text(), end="")
        # heat.h5: 3 simulations
        data:
          path: heat.h5
          inputs: [u]
        # boundary: {x: circular}    # if x is periodic
    """

    def __init__(self, *about: str) -> None:
        self._lines = [f"# {line}" for line in about]

    def key(self, name: str, value: Any, why: str = "") -> None:
        """Add `name: value`."""
        self._lines.append(_with(f"{name}: {plain(value)}", why))

    def section(self, name: str, why: str = "", /, **keys: Any) -> None:
        """Add a section with its keys, one per line; keys with value None are skipped."""
        self._lines.append(_with(f"{name}:", why))
        self._lines += [f"  {k}: {plain(v)}" for k, v in keys.items() if v is not None]

    def comment(self, text: str, why: str = "") -> None:
        """Add a setting that is commented out."""
        self._lines.append(_with(f"# {text}", why))

    def text(self) -> str:
        """Return the YAML text."""
        return "\n".join(self._lines) + "\n"


def plain(value: Any) -> str:
    """Format a value as single-line YAML.

    Example:
        >>> plain({"train": 0.7}), plain("a: b"), plain(None)
        ('{train: 0.7}', "'a: b'", 'null')
    """
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("\n...\n").rstrip("\n")


def _with(line: str, why: str) -> str:
    return f"{line}    # {why}" if why else line

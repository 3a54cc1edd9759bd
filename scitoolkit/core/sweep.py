"""Sweeps: several values of a setting on the command line, `training.seed=1,2,3 model=unet,fno`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_CLOSING = {"[": "]", "{": "}", "(": ")"}


def alternatives(setting: str) -> list[str]:
    """Return a setting once for each value that commas separate outside brackets and quotes.

    Args:
        setting: `section.key=value`, `section.key=value,value` or `~section.key`.

    Example:
        >>> alternatives("training.seed=1,2")
        ['training.seed=1', 'training.seed=2']
        >>> alternatives("model={name: unet, widths: [8, 16]}"), alternatives("title='a,b'")
        (['model={name: unet, widths: [8, 16]}'], ["title='a,b'"])
    """
    key, sign, value = setting.partition("=")
    if not sign or setting.startswith("~"):
        return [setting]
    parts, waiting, quote = [""], "", ""
    for letter in value:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _CLOSING:
            waiting = _CLOSING[letter] + waiting
        elif waiting and letter == waiting[0]:
            waiting = waiting[1:]
        elif letter == "," and not waiting:
            parts.append("")
            continue
        parts[-1] += letter
    # An unclosed bracket or quote is an error of the value, which its parser tells.
    whole = bool(waiting or quote) or any(not part.strip() for part in parts)
    return [setting] if whole else [f"{key}={part.strip()}" for part in parts]


def combinations(settings: Sequence[str]) -> list[list[str]]:
    """Return the settings of every run of a sweep; the last setting varies fastest.

    Example:
        >>> combinations(["seed=1,2", "lr=3", "model=a,b"])[1]
        ['seed=1', 'lr=3', 'model=b']
    """
    return [list(chosen) for chosen in itertools.product(*map(alternatives, settings))]


def swept(settings: Sequence[str]) -> list[str]:
    """Return the keys that have several values."""
    return [s.partition("=")[0] for s in settings if len(alternatives(s)) > 1]

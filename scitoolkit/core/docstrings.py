"""Texts of a class's docstring, for the JSON schemas of configurations."""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(r"^[A-Z]\w*:$", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+): *(.*(?:\n {5,}.*)*)", re.MULTILINE)


def summary(cls: type) -> str:
    """Return the docstring of `cls` before its first section (`Attributes:`, `Example:`).

    Example:
        >>> class Ball:
        ...     '''A body.
        ...
        ...     Attributes:
        ...         radius: in m.
        ...     '''
        >>> summary(Ball)
        'A body.'
    """
    return _SECTION.split(inspect.cleandoc(cls.__doc__ or ""), maxsplit=1)[0].strip()


def attribute_texts(cls: type) -> dict[str, str]:
    """Return {attribute: text} of the section `Attributes:` of `cls` and its base classes.

    Example:
        >>> class Ball:
        ...     '''A body.
        ...
        ...     Attributes:
        ...         radius: of the sphere,
        ...             in m.
        ...     '''
        >>> attribute_texts(Ball)
        {'radius': 'of the sphere, in m.'}
    """
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        doc = inspect.cleandoc(vars(base).get("__doc__") or "")
        body = re.split(r"^Attributes:$", doc, maxsplit=1, flags=re.MULTILINE)[1:]
        for name, text in _ENTRY.findall(_SECTION.split(body[0], maxsplit=1)[0] if body else ""):
            texts[name] = " ".join(text.split())
    return texts

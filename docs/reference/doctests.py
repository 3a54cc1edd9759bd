"""Reads the `Example:` of our docstrings as code: griffe knows the plural alone."""

from __future__ import annotations

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Gives the section the name that griffe renders as Python sessions."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section of one docstring."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", text)

"""Starter configuration of a compression, generated from the variables of a file."""

from __future__ import annotations

from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.choose import Options
from scitoolkit.compression.files import FilePlan, wanted_variables
from scitoolkit.core.starter import CommentedLines, DataToStart


def starter(data: DataToStart) -> str:
    """Return a short commented configuration that runs without changes."""
    names = wanted_variables(data.one, FilePlan(Bound("rel", 1e-2), {}, Options()))
    lines = CommentedLines(
        f"Every value of {', '.join(names)} within 1 % of the range of its variable."
    )
    lines.key("domain", "compression")
    lines.section("data", path=data.path, variables=list(names))
    lines.section("bound", "abs: in the variable's unit; rel: of its range", mode="rel", value=0.01)
    return lines.text()

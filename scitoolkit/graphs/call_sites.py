"""Places in a user's code that call torch, recorded in the check and compared in the training.

The check runs a model on a small graph. Code that only a larger graph or other features reach was
not compared with anything, so a model that reaches it is refused.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from types import CodeType, FrameType

from scitoolkit.graphs.local_rows import Unsupported

Site = tuple[CodeType, int]
_PACKAGE = str(Path(__file__).resolve().parents[1])
_OTHERS = (str(Path(os.__file__).parent), "<")


class CallSites:
    """The call sites of a model.

    Attributes:
        sites: code and position within it of every call so far.
        closed: whether other sites are refused.
        local_count: where the user's code first takes a number of local rows as a plain number,
            such as by `len(x)`, whose comparisons are not those of the whole graph; or empty.
    """

    def __init__(self) -> None:
        self.sites: set[Site] = set()
        self.closed: bool = False
        self.local_count: str = ""

    def visit(self, name: str) -> None:
        """Record the innermost place in the user's code that calls a function, or refuse it.

        Raises:
            Unsupported: the sites are closed, and this is another one.
        """
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and (owner := _owner(frame.f_code)) != "user":
            frame = None if owner == "package" else frame.f_back
        if frame is None or (frame.f_code, frame.f_lasti) in self.sites:
            return
        if self.closed:
            raise Unsupported(
                f"{name} at {_place(frame)} is reached on this graph, but not on that of the check"
            )
        self.sites.add((frame.f_code, frame.f_lasti))

    def note_plain_count(self, what: str = "int(x.size(0))") -> None:
        """Record that a plain number of local rows is made, if the user's code itself does.

        Args:
            what: the expression that makes it.
        """
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and _owner(frame.f_code) == "package":
            frame = frame.f_back
        while frame is not None and (
            "torch" in Path(frame.f_code.co_filename).parts
            or frame.f_code.co_name == "maybe_num_nodes"
        ):
            frame = frame.f_back
        if frame is not None and _owner(frame.f_code) == "user" and not self.local_count:
            self.local_count = f"{what} at {_place(frame)}"


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


@functools.cache
def _owner(code: CodeType) -> str:
    """Return `package` for code of this package, `library` for torch and Python, else `user`."""
    name = code.co_filename
    if name.startswith(_PACKAGE):
        return "package"
    parts = Path(name).parts
    library = "torch" in parts or "torch_geometric" in parts
    inside = name.startswith(_OTHERS) and "site-packages" not in parts
    return "library" if library or inside else "user"

"""Places in a user's code that call torch, recorded in the check and compared in the training.

The check runs a model on a small graph. Code that only a larger graph or other features reach was
not compared with anything, so a model that reaches it is refused.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torch import Tensor

from scitoolkit.graphs.code_owner import code_owner
from scitoolkit.graphs.local_rows import Unsupported
from scitoolkit.graphs.tags import flat, tag_of

Site = tuple[CodeType, int]
# Addresses, and memory that nothing has been written to.
_ARBITRARY = ("data_ptr", "empty", "empty_like", "empty_strided", "new_empty", "__hash__")


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
        self._results: dict[Any, dict[int, list[list[float]]]] = {}

    def visit(self, name: str) -> None:
        """Record the innermost place in the user's code that calls a function, or refuse it.

        Raises:
            Unsupported: the sites are closed, and this is another one.
        """
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and (owner := code_owner(frame.f_code)) != "user":
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
        frame = _direct_caller()
        if frame is not None and not self.local_count:
            self.local_count = f"{what} at {_place(frame)}"

    def record(self, rank: int, name: str, out: Any) -> None:
        """Record a result that is not of a rank's rows, to be compared by `note_differences`.

        Args:
            rank: that has computed it.
            name: of the torch function.
            out: its result.
        """
        frame = None if self.closed or name in _ARBITRARY else _direct_caller()
        if frame is None or not (numbers := [*_numbers(out)]):
            return
        key = (frame.f_code, frame.f_lasti, f"{name} of local rows at {_place(frame)}")
        self._results.setdefault(key, {}).setdefault(rank, []).append(numbers)

    def forget(self) -> None:
        """Forget what a trial before has taken, in which other modules may have seen local rows."""
        self.local_count = ""
        self._results.clear()

    def note_differences(self, ranks: int) -> None:
        """Note the first result that differs from rank to rank: it is of local rows."""
        for (*_, what), by_rank in self._results.items():
            first, *others = (by_rank.get(rank, []) for rank in range(ranks))
            if not self.local_count and not all(_equal(first, other) for other in others):
                self.local_count = what
        self._results.clear()


def _direct_caller() -> FrameType | None:
    """Return the frame of the user's code if it calls torch itself, not by another library."""
    frame: FrameType | None = sys._getframe(1)
    inside = True
    while inside and frame is not None and code_owner(frame.f_code) == "package":
        inside = frame.f_code.co_name != "__torch_function__"  # called by a layer of the package
        frame = frame.f_back
    while frame is not None and (
        "torch" in Path(frame.f_code.co_filename).parts or frame.f_code.co_name == "maybe_num_nodes"
    ):
        frame = frame.f_back
    return frame if frame is not None and code_owner(frame.f_code) == "user" else None


def _numbers(out: Any) -> Iterator[float]:
    """Yield what two results must have in common: shapes, sums and numbers."""
    for value in flat((out,)):
        if isinstance(value, Tensor) and tag_of(value) is None:
            yield from map(float, value.shape)
            # Those of other layouts, and of functions in `vmap`, have no numbers to read.
            with suppress(RuntimeError, NotImplementedError):
                rows = value.detach().abs().double()
                yield from (float(value.detach().sum().real), float(rows.sum()))
        elif isinstance(value, (int, float)):
            yield float(value)


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_equal, ours, theirs))
    both_nan = math.isnan(ours) and math.isnan(theirs)
    return both_nan or math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-6)


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"

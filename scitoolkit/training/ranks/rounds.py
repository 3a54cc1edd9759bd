"""Distribution of the parts of a result over processes, with resumable storage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.core.processes import world_size
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.processes import on_rank_zero, process_group, raise_together
from scitoolkit.training.ranks.communicator import join


@contextlib.contextmanager
def joined_to_share() -> Iterator[None]:
    """Join the process group, if any, to share work other than training."""
    # The batch size must be a multiple of the number of processes; it is not used.
    with process_group(TrainingConfig(device="cpu", batch_size=world_size())):
        yield


class PartStore(Protocol):
    """Storage of parts of a result, such as `scitoolkit.io.parts.Parts`."""

    def opened(self) -> AbstractContextManager[Any]:
        """Return a context in which the store is open, for one process."""

    def missing(self) -> list[int]:
        """Return the numbers of the parts that are not stored yet."""

    def save(self, number: int, arrays: Mapping[str, Any]) -> None:
        """Store a part."""


@contextlib.contextmanager
def completed(
    parts: PartStore, work: Callable[[int], Mapping[str, Any]], *, divided: bool = True
) -> Iterator[bool]:
    """Compute the missing parts; yield whether this process writes the output.

    Args:
        parts: storage on a disk that all processes share.
        work: returns the arrays of a part, given its number.
        divided: whether each process computes different parts, in rounds of one part per process,
            after which an error of one process is raised on all. Otherwise all processes compute
            each part together, and the first one stores it.
    """
    ranks = join()
    with contextlib.ExitStack() as stack:

        def begin() -> list[int]:
            stack.enter_context(parts.opened())
            return parts.missing()

        missing = on_rank_zero(begin)
        width = ranks.size if divided else 1
        for first in range(0, len(missing), width):
            own = first + (ranks.rank if divided else 0)
            caught = None
            try:
                if own < min(first + width, len(missing)):
                    arrays = work(missing[own])
                    if divided or ranks.rank == 0:
                        parts.save(missing[own], arrays)
            except ScitoolkitError as error:
                caught = error
            raise_together(caught)
        yield ranks.rank == 0

"""Parts of a result, computed by the processes of a job and kept until all are there."""

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
    """Join the other processes of this job, if there are any, to share work that is no training."""
    # The batch size has to be a multiple of the processes; nothing reads it.
    with process_group(TrainingConfig(device="cpu", batch_size=world_size())):
        yield


class PartStore(Protocol):
    """Where parts of a result are kept; `scitoolkit.io.parts.Parts` is one."""

    def opened(self) -> AbstractContextManager[Any]:
        """Make the store ready, in one process."""

    def missing(self) -> list[int]:
        """Return the numbers of the parts that are still to be computed."""

    def save(self, number: int, arrays: Mapping[str, Any]) -> None:
        """Keep a part."""


@contextlib.contextmanager
def completed(
    parts: PartStore, work: Callable[[int], Mapping[str, Any]], *, divided: bool = True
) -> Iterator[bool]:
    """Compute the missing parts; yield whether this process is the one that writes the output.

    Divided, each process computes parts by itself, in rounds of one a process: none waits for
    longer than a part takes, and an error of one ends all. Otherwise all processes work on each
    part in turn, and the first keeps it.

    Args:
        parts: on a disk that all processes see.
        work: returns the arrays of a part, by its number.
        divided: see above.
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

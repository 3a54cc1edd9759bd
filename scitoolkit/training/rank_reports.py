"""Identification of lost ranks through the key-value store of the process group.

Communication libraries report an address at best. Each rank that fails with an exception writes a
line to the store; a rank without a line was killed or stopped.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from typing import Any

from scitoolkit.core.errors import BackendError

WAIT_SECONDS = 3.0


class LostRank(BackendError):
    """A rank's communication with another one ended."""


class RankReports:
    """Error reports of ranks in the key-value store.

    Args:
        store: the key-value store of the process group, served by rank 0 or torchrun's agent.
        rank, world: rank of this process and number of processes.
    """

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self._store, self._rank, self._world = store, rank, world

    def explain(self, error: Exception) -> Exception:
        """Report `error`; return it, with the lost ranks named if it is a `LostRank`.

        Call it after destroying the process group, so that no rank waits for this one.
        """
        line = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        lines: dict[int, str] | None = None
        with contextlib.suppress(RuntimeError):  # the rank that served the store has exited
            self._store.set_timeout(datetime.timedelta(seconds=WAIT_SECONDS))
            self._store.set(f"ended/{self._rank}", f"{int(isinstance(error, LostRank))}{line}")
            lines = self._collected("ended", range(self._world))
            self._store.set(f"read/{self._rank}", "1")
            if self._rank == 0:  # serves the store until the others have read it
                self._collected("read", lines)
        if isinstance(error, LostRank):
            return LostRank(error.what, fix=self._advice(lines))
        return error

    def _collected(self, topic: str, ranks: Any) -> dict[int, str]:
        """Return the lines of `ranks` under a topic, waiting for all of them."""
        lines_of: dict[int, str] = {}
        deadline = time.monotonic() + WAIT_SECONDS
        while len(lines_of) < len(ranks) and time.monotonic() < deadline:
            for rank in ranks:
                if rank not in lines_of and self._store.check([f"{topic}/{rank}"]):
                    lines_of[rank] = self._store.get(f"{topic}/{rank}").decode()
            time.sleep(0.02)
        return lines_of

    def _advice(self, lines: dict[int, str] | None) -> str:
        if lines is None:
            return "rank 0 does not answer: see its output; without an error it was killed"
        silent = [str(rank) for rank in range(self._world) if rank not in lines]
        if silent:
            who = f"rank {silent[0]} was" if len(silent) == 1 else f"ranks {', '.join(silent)} were"
            return f"{who} killed or stopped: look for out-of-memory kills and lost nodes"
        causes = [f"rank {r}: {t[1:]}" for r, t in sorted(lines.items()) if t.startswith("0")]
        return causes[0] if causes else "the network between the ranks failed"

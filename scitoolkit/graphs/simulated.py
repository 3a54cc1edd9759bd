"""Ranks as threads of one process: distributed algorithms tested on any number, in milliseconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

WAIT_SECONDS = 60.0


class _Board:
    barrier: Any

    def __init__(self, size: int, seconds: float) -> None:
        self.barrier = threading.Barrier(size, timeout=seconds)
        self.posted: list[Any] = [None] * size


class ThreadRank:
    """One of the ranks of `run_ranks`; exchanges as torch's all_to_all_single does.

    Attributes:
        rank, size: this rank and their number.
        log: numbers received from each rank, one list an exchange.
    """

    def __init__(self, rank: int, board: _Board, traffic: Any) -> None:
        self.rank: int = rank
        self.size: int = len(board.posted)
        self._board = board
        self.traffic = traffic
        self.log: list[list[int]] = []

    def start(
        self, send: Tensor, sent: Sequence[int], receive: Tensor, received: Sequence[int]
    ) -> Callable[[], None]:
        """Exchange at once; counts that do not fit each other are an error on this rank."""
        board = self._board
        board.posted[self.rank] = send.detach().clone().split(list(sent))
        board.barrier.wait()
        parts = [board.posted[other][self.rank] for other in range(self.size)]
        board.barrier.wait()
        for other, (part, count) in enumerate(zip(parts, received, strict=True)):
            if len(part) != count:
                board.barrier.abort()
                raise AssertionError(
                    f"rank {self.rank} expects {count} numbers from rank {other}, who sent "
                    f"{len(part)}"
                )
        begin = 0
        for part in parts:
            receive[begin : begin + len(part)] = part
            begin += len(part)
        self.log.append([len(part) for part in parts])
        self.traffic.count(self.rank, received, send.element_size())
        return lambda: None


def run_ranks(
    size: int,
    function: Callable[[ThreadRank], Any],
    traffic: Callable[[], Any],
    seconds: float = WAIT_SECONDS,
) -> list:
    """Call `function(rank)` on `size` ranks at once and return what they return.

    Args:
        size: number of ranks.
        function: called with a `ThreadRank`.
        traffic: makes each rank's counter.
        seconds: that a rank waits for the others in an exchange.

    Raises:
        BaseException: the first rank's error; the others end with it.
    """
    board = _Board(size, seconds)
    results: list[Any] = [None] * size
    errors: list[BaseException | None] = [None] * size

    def work(rank: int) -> None:
        try:
            results[rank] = function(ThreadRank(rank, board, traffic()))
        except BaseException as error:
            errors[rank] = error
            board.barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    real = [e for e in errors if e is not None and not isinstance(e, threading.BrokenBarrierError)]
    for error in [*real, *errors]:
        if error is not None:
            raise error
    return results

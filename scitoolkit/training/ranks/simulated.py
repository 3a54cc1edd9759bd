"""Simulated ranks: threads of one process, to test distributed algorithms in milliseconds.

One thread runs at a time, up to its next exchange; then the next rank runs. Threads therefore do
not compete for the GIL, each rank draws its random numbers as a process would, and a rank that
waits for ranks that have ended is detected at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from scitoolkit.core.seeds import rng_state, set_rng_state


class _Board:
    """Scheduler of the threads, and the messages of the current and the previous exchange."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.posted: list[list[Any]] = [[None] * size, [None] * size]
        self.ended: list[bool] = [False] * size
        self.broken = False
        self._turn = [threading.Semaphore(0) for _ in range(size)]

    def take_turn(self, rank: int) -> None:
        self._turn[rank].acquire()

    def pass_turn(self, rank: int) -> None:
        """Resume the next rank that has not ended."""
        for step in range(1, self.size + 1):
            other = (rank + step) % self.size
            if not self.ended[other]:
                self._turn[other].release()
                return

    def exchange(self, rank: int, number: int, parts: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """Post a message, wait for those of all ranks, and return them.

        Raises:
            BrokenBarrierError: a rank has ended or failed.
        """
        posted = self.posted[number % 2]
        posted[rank] = (number, parts)
        state = rng_state()  # the generators belong to the process, the draws to the rank
        self.pass_turn(rank)
        self.take_turn(rank)
        set_rng_state(state)
        if self.broken or any(letter is None or letter[0] != number for letter in posted):
            raise threading.BrokenBarrierError
        return [letter[1] for letter in posted]


class ThreadRank:
    """Communicator of a simulated rank, equivalent to torch's all_to_all_single.

    Attributes:
        rank, size: this rank and the number of ranks.
    """

    def __init__(self, rank: int, board: _Board, traffic: Any) -> None:
        self.rank: int = rank
        self.size: int = board.size
        self._board = board
        self._exchanges = 0
        self.traffic = traffic

    def start(
        self, send: Tensor, sent: Sequence[int], receive: Tensor, received: Sequence[int]
    ) -> Callable[[], None]:
        """Exchange synchronously; raise AssertionError if the counts of two ranks differ."""
        mine = send.detach().clone().split(list(sent))
        posted = self._board.exchange(self.rank, self._exchanges, mine)
        self._exchanges += 1
        begin = 0
        for other, count in enumerate(received):
            part = posted[other][self.rank]
            if len(part) != count:
                raise AssertionError(
                    f"rank {self.rank} expects {count} numbers from rank {other}, which sent "
                    f"{len(part)}"
                )
            receive[begin : begin + count] = part
            begin += count
        self.traffic.count(self.rank, received, send.element_size())
        return lambda: None


def run_ranks(size: int, function: Callable[[ThreadRank], Any], traffic: Callable[[], Any]) -> list:
    """Call `function(rank)` on `size` simulated ranks and return the results, by rank.

    Args:
        size: number of ranks.
        function: called with a `ThreadRank`.
        traffic: creates the traffic counter of a rank.

    Raises:
        BrokenBarrierError: a rank waits for one that has ended.
        BaseException: the error of the first rank that failed, which also ends the others.
    """
    board = _Board(size)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def work(rank: int) -> None:
        board.take_turn(rank)
        try:
            if not board.broken:
                results[rank] = function(ThreadRank(rank, board, traffic()))
        except BaseException as error:
            errors.append(error)
            board.broken = True
        finally:
            board.ended[rank] = True
            board.pass_turn(rank)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    board.pass_turn(size - 1)
    for thread in threads:
        thread.join()
    real = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
    for error in real or errors:
        raise error
    return results

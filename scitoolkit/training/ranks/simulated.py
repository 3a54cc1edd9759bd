"""Ranks as threads of one process: distributed algorithms tested on any number, in milliseconds.

One thread runs at a time, to its next exchange, then the next rank's does. So threads do not wait
for Python's lock, random numbers come in one order, and a rank that waits for others that have
ended is found at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor


class _Board:
    """Whose turn it is, and what ranks have posted for this exchange and the one before."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.posted: list[list[Any]] = [[None] * size, [None] * size]
        self.ended = [False] * size
        self.broken = False
        self._turn = [threading.Semaphore(0) for _ in range(size)]

    def take_turn(self, rank: int) -> None:
        self._turn[rank].acquire()

    def pass_turn(self, rank: int) -> None:
        """Let the next rank run that has not ended."""
        for step in range(1, self.size + 1):
            other = (rank + step) % self.size
            if not self.ended[other]:
                self._turn[other].release()
                return

    def exchange(self, rank: int, number: int, parts: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """Post, let all others post, and return what each rank posted.

        Raises:
            BrokenBarrierError: a rank has ended, or failed.
        """
        posted = self.posted[number % 2]
        posted[rank] = (number, parts)
        self.pass_turn(rank)
        self.take_turn(rank)
        if self.broken or any(each is None or each[0] != number for each in posted):
            raise threading.BrokenBarrierError
        return [each[1] for each in posted]


class ThreadRank:
    """One of the ranks of `run_ranks`; exchanges as torch's all_to_all_single does.

    Attributes:
        rank, size: this rank and their number.
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
        """Exchange at once; counts that do not fit each other are an error on this rank."""
        mine = send.detach().clone().split(list(sent))
        posted = self._board.exchange(self.rank, self._exchanges, mine)
        self._exchanges += 1
        begin = 0
        for other, count in enumerate(received):
            part = posted[other][self.rank]
            if len(part) != count:
                raise AssertionError(
                    f"rank {self.rank} expects {count} numbers from rank {other}, who sent "
                    f"{len(part)}"
                )
            receive[begin : begin + count] = part
            begin += count
        self.traffic.count(self.rank, received, send.element_size())
        return lambda: None


def run_ranks(size: int, function: Callable[[ThreadRank], Any], traffic: Callable[[], Any]) -> list:
    """Call `function(rank)` on `size` ranks and return what they return.

    Args:
        size: number of ranks.
        function: called with a `ThreadRank`.
        traffic: makes each rank's counter.

    Raises:
        BrokenBarrierError: a rank waits for one that has ended.
        BaseException: the first rank's error; the others end with it.
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

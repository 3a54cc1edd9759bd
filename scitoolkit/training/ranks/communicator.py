"""Communicators: one uneven all-to-all with traffic counters, which all algorithms use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from scitoolkit.training.traffic import Traffic

Wait = Callable[[], None]


class Communicator(Protocol):
    """Communicator of a rank.

    Attributes:
        rank, size: this rank and the number of ranks.
        traffic: counters of received data.
    """

    rank: int
    size: int
    traffic: Traffic

    def start(
        self, send: Tensor, sent: Sequence[int], receive: Tensor, received: Sequence[int]
    ) -> Wait:
        """Start a collective all-to-all with `sent[r]` numbers for rank r.

        `send` and `receive` are flat. The returned function waits; call it before reading
        `receive`.
        """


class SingleProcess:
    """Communicator of a single process."""

    rank: int = 0
    size: int = 1

    def __init__(self) -> None:
        self.traffic: Traffic = Traffic()

    def start(
        self, send: Tensor, sent: Sequence[int], receive: Tensor, received: Sequence[int]
    ) -> Wait:
        """Copy `send` to `receive`."""
        receive.copy_(send)
        return lambda: None


class ProcessGroup:
    """Communicator over the default process group of torch.distributed."""

    def __init__(self) -> None:
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        self.traffic: Traffic = Traffic()

    def start(
        self, send: Tensor, sent: Sequence[int], receive: Tensor, received: Sequence[int]
    ) -> Wait:
        """Start the exchange asynchronously, to overlap it with local work."""
        self.traffic.count(self.rank, received, send.element_size())
        send = send.contiguous()  # a flat view may have strides, such as an expanded gradient's
        work = dist.all_to_all_single(receive, send, list(received), list(sent), async_op=True)
        # Keeps `send` alive until the exchange is complete.
        return lambda: (work.wait(), send)[0]


def join() -> Communicator:
    """Return the communicator of this process."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        return ProcessGroup()
    return SingleProcess()


@dataclass(frozen=True)
class RowExchange:
    """Pattern of a row exchange between ranks, and of its adjoint.

    Attributes:
        index: rows to send, by receiving rank, shape (sum of sent,), int64.
        sent, received: number of rows to and from each rank.
    """

    index: Tensor
    sent: tuple[int, ...]
    received: tuple[int, ...]

    @property
    def rows_received(self) -> int:
        """Number of rows received from all ranks."""
        return sum(self.received)

    def to(self, device: torch.device) -> RowExchange:
        """Return the exchange for rows on a device."""
        return RowExchange(self.index.to(device), self.sent, self.received)

    def start(
        self, ranks: Communicator, x: Tensor, receive: Tensor | None = None
    ) -> tuple[Tensor, Wait]:
        """Start sending `x[index]`; return the received rows, valid after waiting.

        Args:
            ranks: the communicator.
            x: rows, shape (n, width).
            receive: receives the rows, shape (rows_received, width), None for a new one.
        """
        width = x.shape[1]
        receive = x.new_empty(self.rows_received, width) if receive is None else receive
        send = x.index_select(0, self.index)
        wait = ranks.start(
            send.view(-1),
            [n * width for n in self.sent],
            receive.view(-1),
            [n * width for n in self.received],
        )
        return receive, wait

    def start_back(self, ranks: Communicator, rows: Tensor) -> tuple[Tensor, Wait]:
        """Start sending rows that `start` received back to their owners."""
        width = rows.shape[1]
        receive = rows.new_empty(len(self.index), width)
        wait = ranks.start(
            rows.reshape(-1),
            [n * width for n in self.received],
            receive.view(-1),
            [n * width for n in self.sent],
        )
        return receive, wait

    def add(self, into: Tensor, rows: Tensor) -> Tensor:
        """Add rows received by `start_back` to the rows that were sent, in order of the ranks."""
        return into.index_add_(0, self.index, rows)

"""How ranks talk: one uneven all-to-all, counted, over which every algorithm is written."""

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
    """The ranks of a job, as one of them sees them."""

    rank: int
    size: int
    traffic: Traffic

    def start(
        self, send: Tensor, sent: Sequence[int], receive: Tensor, received: Sequence[int]
    ) -> Wait:
        """Begin an exchange that every rank joins, with `sent[r]` numbers for rank r.

        `send` and `receive` are flat; call what is returned before `receive` is read.
        """


class SingleProcess:
    """A job of one process."""

    rank: int = 0
    size: int = 1

    def __init__(self) -> None:
        self.traffic: Traffic = Traffic()

    def start(
        self, send: Tensor, sent: Sequence[int], receive: Tensor, received: Sequence[int]
    ) -> Wait:
        """Copy; nothing is sent."""
        receive.copy_(send)
        return lambda: None


class ProcessGroup:
    """The default process group of torch.distributed: gloo on CPUs, NCCL on GPUs."""

    def __init__(self) -> None:
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        self.traffic: Traffic = Traffic()

    def start(
        self, send: Tensor, sent: Sequence[int], receive: Tensor, received: Sequence[int]
    ) -> Wait:
        """Exchange asynchronously, so that local products run meanwhile."""
        self.traffic.count(self.rank, received, send.element_size())
        work = dist.all_to_all_single(receive, send, list(received), list(sent), async_op=True)
        # `send` must live as long as the exchange.
        return lambda: (work.wait(), send)[0]


def join() -> Communicator:
    """Return the communicator of this process."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        return ProcessGroup()
    return SingleProcess()


@dataclass(frozen=True)
class RowExchange:
    """Rows that go from rank to rank; run backwards, it adds up what comes back.

    Attributes:
        index: rows to send, by receiving rank, shape (sum of sent,), int64.
        sent, received: rows to and from each rank.
    """

    index: Tensor
    sent: tuple[int, ...]
    received: tuple[int, ...]

    @property
    def rows_received(self) -> int:
        """Rows that come in, all ranks together."""
        return sum(self.received)

    def to(self, device: torch.device) -> RowExchange:
        """Return the exchange of rows that are on a device."""
        return RowExchange(self.index.to(device), self.sent, self.received)

    def start(self, ranks: Communicator, x: Tensor) -> tuple[Tensor, Wait]:
        """Send `x[index]`; return the rows that come in, valid after waiting."""
        width = x.shape[1]
        receive = x.new_empty(self.rows_received, width)
        send = x.index_select(0, self.index)
        wait = ranks.start(
            send.view(-1), [n * width for n in self.sent],
            receive.view(-1), [n * width for n in self.received],
        )  # fmt: skip
        return receive, wait

    def start_back(self, ranks: Communicator, rows: Tensor) -> tuple[Tensor, Wait]:
        """Send rows that came in by `start` back to where they came from."""
        width = rows.shape[1]
        receive = rows.new_empty(len(self.index), width)
        wait = ranks.start(
            rows.reshape(-1), [n * width for n in self.received],
            receive.view(-1), [n * width for n in self.sent],
        )  # fmt: skip
        return receive, wait

    def add(self, into: Tensor, rows: Tensor) -> Tensor:
        """Add what `start_back` brought to the rows that were sent, in the order of ranks."""
        return into.index_add_(0, self.index, rows)

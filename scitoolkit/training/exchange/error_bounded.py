"""Error-bounded gradient sums, sent as entropy-coded integers.

Each rank sends the codes of each segment of the bucket to the rank that sums it, which sends the
codes of the sums to all; all ranks decode the same bytes. `share`, the error bound over the root
mean square, is halved when the error is large relative to the sums, and raised slowly otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from scitoolkit.training.exchange.coded import SumMessage

TOLERATED = 0.3  # norm of the error over the norm of the sums
RAISED, EVERY = 1.05, 100  # factor of an increase, and number of sums between two increases
SMALLEST = 1e-4


@dataclass
class ErrorBoundedSum:
    """Bucket sum by all-to-all and all-gather of entropy-coded numbers.

    Args:
        share: initial error bound over the root mean square of each block of 1,024 numbers.
        most: upper limit of `share`.
    """

    share: float
    most: float
    quiet: int = 0

    def start(self, bucket: Tensor) -> Callable[[], object]:
        """Start summing a flat tensor in place; its last number is summed exactly."""
        world, rank, share = dist.get_world_size(), dist.get_rank(), self.share
        cuts = [r * len(bucket) // world for r in range(world + 1)]
        exact = float(bucket[-1])  # of the last bucket it is the trainer's error flag
        values = bucket.detach().cpu().float().numpy()
        parts = [values[cuts[r] : cuts[r + 1]] for r in range(world)]
        sent = [SumMessage.of(part, share, exact) for part in parts]
        exchange = _Uneven([message.data for message in sent])

        def finish() -> None:
            received = [SumMessage.read(data, len(parts[rank])) for data in exchange.received()]
            sums = np.sum([message.values for message in received], axis=0)
            total = sum(message.exact for message in received)
            error = sum(message.error for message in received)
            reply = SumMessage.of(sums, share, total, error)
            data = _Uneven([reply.data] * world).received()
            replies = [
                SumMessage.read(packed, cuts[r + 1] - cuts[r]) for r, packed in enumerate(data)
            ]
            for r, message in enumerate(replies):
                bucket[cuts[r] : cuts[r + 1]] = torch.from_numpy(message.values)
            bucket[-1] = replies[0].exact
            self._adapt(replies)

        return finish

    def state_dict(self) -> dict[str, Any]:
        """Return the share, which is the same on all ranks."""
        return {"share": self.share, "quiet": self.quiet}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.share, self.quiet = float(state["share"]), int(state["quiet"])

    def _adapt(self, replies: list[SumMessage]) -> None:
        """Adapt the share for the next sums; the result is the same on all ranks."""
        error = sum(message.error for message in replies)
        square = sum(float((message.values.astype("f8") ** 2).sum()) for message in replies)
        self.quiet += 1
        if error > TOLERATED**2 * square:
            self.share, self.quiet = max(self.share / 2, SMALLEST), 0
        elif self.quiet >= EVERY:
            self.share, self.quiet = min(self.share * RAISED, self.most), 0


class _Uneven:
    """All-to-all of messages of different lengths: first the lengths, then the bytes.

    Args:
        data: uint8 messages, by receiving rank.
    """

    def __init__(self, data: list[Tensor]) -> None:
        self._sent = torch.tensor([len(message) for message in data])
        self._lengths = torch.empty_like(self._sent)
        self._data = torch.cat(data)
        self._work = dist.all_to_all_single(self._lengths, self._sent, async_op=True)

    def received(self) -> list[Tensor]:
        """Wait; return the messages by sending rank."""
        self._work.wait()
        lengths = self._lengths.tolist()
        out = self._data.new_empty(sum(lengths))
        dist.all_to_all_single(out, self._data, lengths, self._sent.tolist())
        return list(out.split(lengths))

"""Time at which a device reaches a point of its queued work."""

from __future__ import annotations

import time

import torch


class Moment:
    """The present on the CPU; on a GPU, the end of all work that was queued before.

    Args:
        device: device whose time is measured.

    Example:
        >>> begin = Moment(torch.device("cpu"))
        >>> begin.seconds_until(Moment(torch.device("cpu"))) >= 0
        True
    """

    def __init__(self, device: torch.device) -> None:
        self._seconds = time.perf_counter()
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)
            self._event.record(torch.cuda.current_stream(device))

    def seconds_until(self, later: Moment) -> float:
        """Return the seconds between two moments of a device, for which the host waits."""
        if self._event is None or later._event is None:
            return later._seconds - self._seconds
        later._event.synchronize()
        return self._event.elapsed_time(later._event) / 1000

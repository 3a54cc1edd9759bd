"""Peak memory of live tensors, without the overhead of the allocator."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from scitoolkit.ops.codegen.buffers import POOL


def peak_live_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Return the peak number of bytes allocated by `call`, relative to those before the call.

    On the CPU, allocations are taken from the profiler: resident memory includes fragmentation,
    which varies by a factor of two for the same step.

    Args:
        call: runs a step.
        device: device of its tensors.

    Example:
        >>> peak_live_bytes(lambda: torch.zeros(1000) + torch.zeros(1000), torch.device("cpu"))
        12000
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device)) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise it writes to stderr at every start
    activities = [ProfilerActivity.CPU]
    # Without acc_events, torch 2.11 warns of cycles, of which there is one.
    profiler = profile(activities=activities, profile_memory=True, acc_events=True)
    with POOL.bypassed(), profiler as seen:
        call()
    assert seen.profiler is not None
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak

"""Helpers of the benchmarks: alternating rounds, medians, and a description of the machine."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def alternate(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Return the seconds of every round; all functions run in each round, in rotating order.

    CPU time by default, which is less affected by other load on the machine.
    """
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            start = clock()
            contestants[name]()
            seconds[name].append(clock() - start)
    return seconds


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the median of each contestant's rounds."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def machine() -> dict[str, object]:
    """Return processor, cores, load and versions, which are stored with every figure."""
    model, flags = platform.processor() or platform.machine(), set()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            pairs = [line.split(":", 1) for line in file if ":" in line]
        told = {key.strip(): value.strip() for key, value in pairs}
        model, flags = told.get("model name", model), set(told.get("flags", "").split())
    import torch

    return {
        "processor": model,
        "vectors": next((name for name in ("avx512f", "avx2", "avx") if name in flags), ""),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def memory_mib(kind: str = "VmHWM") -> float:
    """Return `VmRSS` or `VmHWM` of this process; `ru_maxrss` would count the peak of its parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith(kind))
    return int(line.split()[1]) / 1024

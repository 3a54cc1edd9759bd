"""Timing on the device and output of the rungs of `make gpu`.

A rung prints every figure when it has it, so that a rung that is stopped keeps the earlier ones.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

MARK = "FIGURES "
DEVICE = os.environ.get("SCITOOLKIT_BENCH_DEVICE", "cuda")  # cpu: to try the rungs without a GPU
SMALL = DEVICE == "cpu"


def tell(**figures: Any) -> None:
    """Print figures that `_gpu.py` stores."""
    print(MARK + json.dumps(figures), flush=True)


def attempt(missing: str, call: Callable[[], Any]) -> Any:
    """Return the result of a call, or None after its error was told under the name `missing`."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        tell(missing={missing: f"{type(error).__name__}: {error}"[:300]})
        return None


def wait() -> None:
    """Wait until the device has finished."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def await_turn() -> None:
    """Wait until `_gpu.py` lets this process measure: it prepares while others still run."""
    gate = os.environ.get("SCITOOLKIT_BENCH_GATE")
    while gate and not os.path.exists(gate):
        time.sleep(0.05)


def seconds(call: Callable[[], Any]) -> float:
    """Return the seconds of one call until the device has finished."""
    wait()
    start = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - start


def alternate(
    calls: dict[str, Callable[[], Any]], rounds: int = 15, warm: int = 3
) -> dict[str, float]:
    """Return the median seconds of each call, in alternating rounds; waits for its turn."""
    await_turn()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(warm + rounds):
        for name, call in calls.items():
            spent = seconds(call)
            if number >= warm:
                times[name].append(spent)
    return {name: statistics.median(values) for name, values in times.items()}

"""Evaluations of the contract suite of evaluators, which worker processes import without pytest."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import Interrupted
from scitoolkit.search.trial import TrialContext

PATIENCE = 60.0
"""Seconds after which a wait for another process is given up."""


def act(configuration: dict[str, Any], trial: TrialContext) -> Any:
    """Run the function of this module that `configuration["act"]` names."""
    trial.report(1, loss=0.5)
    return _ACTS[configuration["act"]](configuration, trial)


def _answer(configuration: dict[str, Any], trial: TrialContext) -> dict[str, float]:
    """Return the context of the trial after a pause, and leave a file and a changed argument."""
    time.sleep(configuration.get("pause", 0.0))
    (trial.directory / "answered").touch()
    configuration.clear()
    return {
        "seed": trial.seed,
        "budget": trial.budget or 0.0,
        "number": trial.number,
        "resumed": trial.resumed,
        "pid": os.getpid(),
        "threads": float(os.environ.get("OMP_NUM_THREADS", 0)),
    }


def _raise(configuration: dict[str, Any], trial: TrialContext) -> None:
    errors = {
        "raised": ValueError("as asked"),
        "memory": MemoryError("as asked"),
        "disk": OSError(errno.ENOSPC, "as asked"),
        "machine": OSError(errno.EMFILE, "as asked"),
        "interrupted": Interrupted("as asked"),
    }
    raise errors[configuration["failure"]]


def _die(configuration: dict[str, Any], trial: TrialContext) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _train(configuration: dict[str, Any], trial: TrialContext) -> float:
    """Report epochs for longer than any time limit of the suite."""
    started, epoch = time.monotonic(), 1
    while time.monotonic() < started + PATIENCE:
        time.sleep(0.02)
        epoch += 1
        trial.report(epoch, loss=1.0 / epoch)
    return 1.0


def _grow(configuration: dict[str, Any], trial: TrialContext) -> float:
    block = bytearray(600 << 20)
    time.sleep(PATIENCE)
    return float(len(block))


def _meet(configuration: dict[str, Any], trial: TrialContext) -> bool:
    """Return whether as many trials as asked are running at the same time."""
    places = Path(trial.directory).parent
    (trial.directory / "here").touch()
    return waited(lambda: len(list(places.glob("*/here"))) >= configuration["trials"])


def _hang(configuration: dict[str, Any], trial: TrialContext) -> None:
    """Wait for a child process, which this process stops if it is interrupted itself."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(command)
    try:
        partial = trial.directory / "partial"
        partial.write_text(f"{os.getpid()} {child.pid}")
        partial.rename(trial.directory / "pids")
        child.wait()
    finally:
        child.kill()
        child.wait()


def waited(condition: Callable[[], bool]) -> bool:
    """Return whether a condition becomes true within `PATIENCE`."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() > started + PATIENCE:
            return False
        time.sleep(0.02)
    return True


def running_pids(folder: Path) -> set[int]:
    """Return the processes of the trial `hang` in `folder` that are still running."""
    return {pid for pid in map(int, (folder / "pids").read_text().split()) if _is_running(pid)}


def _is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie, which containers may never reap."""
    try:
        os.kill(pid, 0)
        return " Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # ended meanwhile, or a system without /proc
        return not Path("/proc/self").exists()


_ACTS: dict[str, Callable[[dict[str, Any], TrialContext], Any]] = {
    "answer": _answer,
    "raise": _raise,
    "die": _die,
    "train": _train,
    "grow": _grow,
    "meet": _meet,
    "hang": _hang,
    "nan": lambda configuration, trial: float("nan"),
    "nothing": lambda configuration, trial: None,
}

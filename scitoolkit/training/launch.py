"""Launcher of several processes on one machine.

The processes are not started through torchrun, which turns every failure into exit code 1: a
configuration error must exit with 2 for any number of processes. torchrun, srun and mpirun work as
well, because `core.processes` reads the variables that they set. This module does not import torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from scitoolkit.core.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK
from scitoolkit.core.processes import ProcessEnvironment as ProcessEnvironment
from scitoolkit.core.processes import available_cores
from scitoolkit.core.processes import current_rank as current_rank
from scitoolkit.core.processes import leave as leave
from scitoolkit.core.processes import process_environment as process_environment
from scitoolkit.core.processes import world_size as world_size

GRACE_SECONDS = 30.0
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def launch(nproc: int, arguments: Sequence[str], *, module: str = "scitoolkit") -> int:
    """Run `python -m module arguments...` as `nproc` ranks and wait for all of them.

    Signals are forwarded to the ranks, which save together and stop. When one rank fails, the
    others have `GRACE_SECONDS` to exit before they are killed.

    Args:
        nproc: number of processes.
        arguments: command-line arguments of each process.
        module: module to run, as after `python -m`.

    Returns:
        0, or the exit code of the rank that failed first; code 1, with which ranks exit that only
        lost a peer, is returned only if there is no other. 130 if a forwarded signal ended a rank
        before it could handle the signal.
    """
    port = _free_port()
    base = {
        **os.environ,
        "WORLD_SIZE": str(nproc),
        "LOCAL_WORLD_SIZE": str(nproc),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    # As torchrun does: one thread per core in each rank would oversubscribe the cores.
    base.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // nproc)))
    command = [sys.executable, "-m", module, *arguments]
    with _ranks(nproc, command, base) as (ranks, forwarded):
        code = _wait(ranks)
        ended = {-process.returncode for process in ranks if process.poll()}
        return EXIT_INTERRUPTED if code == EXIT_FAILURE and ended & forwarded else code


@contextlib.contextmanager
def _ranks(
    nproc: int, command: list[str], base: dict[str, str]
) -> Iterator[tuple[list[subprocess.Popen[bytes]], set[int]]]:
    ranks: list[subprocess.Popen[bytes]] = []
    forwarded: set[int] = set()
    received: set[tuple[int, int]] = set()  # process and signal

    def send(process: subprocess.Popen[bytes], number: int) -> None:
        if process.poll() is None:
            process.send_signal(number)
            received.add((process.pid, number))

    def forward(number: int, _frame: Any) -> None:
        forwarded.add(number)
        for process in ranks:
            send(process, number)

    previous = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        for rank in range(nproc):
            env = {**base, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            # A separate session, so that Ctrl-C reaches each rank only once, forwarded by us.
            ranks.append(
                subprocess.Popen(
                    command, env=env, start_new_session=True, preexec_fn=_die_with_parent
                )
            )
            # One that came before this rank was in the list did not reach it.
            for number in list(forwarded):
                if (ranks[-1].pid, number) not in received:
                    send(ranks[-1], number)
        yield ranks, forwarded
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
            process.wait()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _wait(ranks: list[subprocess.Popen[bytes]]) -> int:
    failed: dict[int, int] = {}
    deadline = float("inf")
    while any(process.poll() is None for process in ranks) and time.monotonic() < deadline:
        for rank, process in enumerate(ranks):
            if process.poll() and rank not in failed:
                failed[rank] = process.returncode
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        time.sleep(0.02)
    for rank, process in enumerate(ranks):
        if process.poll() and rank not in failed:
            failed[rank] = process.returncode
    for rank, code in failed.items():
        if code < 0:
            name = signal.Signals(-code).name
            print(f"[rank {rank}] ended by {name}", file=sys.stderr)
    codes = [code if code > 0 else EXIT_FAILURE for code in failed.values()]
    return next((c for c in codes if c != EXIT_FAILURE), codes[0] if codes else EXIT_OK)


def _die_with_parent() -> None:
    """On Linux, send SIGTERM to a rank (which saves and stops) when the launcher is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""Ranks in forks of one process that has imported torch, in place of new interpreters.

A rank imports torch for two seconds and trains for a tenth of one. Tests that start many ranks
replace `subprocess.Popen` in the launcher by `WarmRank`; signals, exit codes, environment and
output are those of a new process. Tests of the command line start ranks as users do.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import reduction

_MODULES = ["training_worker", "torch.distributed.fsdp", "torch.distributed.tensor"]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(_MODULES)


class WarmRank:
    """A rank `python -m MODULE ARGUMENTS...`, with the part of `Popen` that the launcher uses."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        start_new_session: bool,
        preexec_fn: Callable[[], None],
    ) -> None:
        assert command[1] == "-m"
        assert start_new_session
        # Not `preexec_fn`, which ends a rank with its parent: here the parent is the server.
        self._process = _FORKS.Process(
            target=_become, daemon=True,
            args=(command[2], list(command[3:]), dict(env), _Descriptor(1), _Descriptor(2)),
        )  # fmt: skip
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Descriptor:
    """A file descriptor that a rank receives: the same open file, with the same position."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple:
        return _received, (reduction.DupFd(self.number),)


def _received(descriptor: reduction.DupFd) -> int:
    return descriptor.detach()


def _become(module: str, arguments: list[str], variables: dict, *outputs: int) -> None:
    os.setsid()
    for number, descriptor in enumerate(outputs, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)

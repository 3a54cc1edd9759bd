"""Ranks in forks of one process that has imported torch, instead of new interpreters.

A rank imports torch for two seconds and trains for a tenth of one. Tests that start many ranks
replace `subprocess.Popen` in the launcher by `WarmRank`; signals, exit codes, environment and
output are those of a new process. Tests of the command line start ranks as users do.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from multiprocessing import reduction

from rank_process import Rank

# The first step of any optimizer imports torch._dynamo.
_MODULES = [
    "training_worker",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(_MODULES)


class WarmRank(Rank):
    """A rank as a fork of the server."""

    def begin(
        self,
        module: str,
        arguments: list[str],
        variables: Mapping[str, str],
        prepare: Callable[[], None],
    ) -> None:
        # Without `prepare`, which ends a rank with its parent: here that is the server.
        self.process = _FORKS.Process(
            target=_become,
            daemon=True,
            args=(module, arguments, dict(variables), _Descriptor(1), _Descriptor(2)),
        )
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int | None:
        self.process.join()
        return self.process.exitcode


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

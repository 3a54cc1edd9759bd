"""Ranks in forks of one process that has imported torch, instead of new interpreters.

A rank imports torch for two seconds and trains for a tenth of one. Tests that start many ranks
replace `subprocess.Popen` in the launcher by `WarmRank`; signals, exit codes, environment and
output are those of a new process. Tests of the command line start ranks as users do.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from multiprocessing import forkserver, reduction
from unittest import mock

from rank_process import Rank

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["rank_imports"])


@functools.cache
def _start_server() -> None:
    """Start the server, which before Python 3.12 finds modules by its environment alone."""
    with mock.patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join(sys.path)}):
        forkserver.ensure_running()


class WarmRank(Rank):
    """A rank as a fork of the server."""

    def begin(
        self,
        module: str,
        arguments: list[str],
        variables: Mapping[str, str],
        prepare: Callable[[], None],
    ) -> None:
        _start_server()
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
    sys.modules.pop(module, None)  # of an imported module runpy warns
    runpy.run_module(module, run_name="__main__", alter_sys=True)

"""Command lines in forks of one process that has imported the package.

A fork behaves as a new process does, from its arguments to its exit code: threads, functions for
the exit and cycles of objects end as in the interpreter. Only the modules and C libraries that all
forks share are not taken apart, which takes half a second and copies their memory. A fork spares
the seconds that the import of torch takes, which is most of the time of a small command. `python
warm_start.py REPLIES PREPARE FINISH` is the server: a JSON object a line on standard input starts a
command, and its exit code comes back on the descriptor REPLIES.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

from rank_process import Rank

# A frozen object lives until its process ends, which the bindings of Triton report as leaks where
# an exception ends a fork.
FROZEN = re.compile(r"^(nanobind: | - leaked | - \.\.\. skipped|See https://nanobind).*\n?", re.M)

# What commands import in any case; nothing in it starts a thread.
MODULES = (
    "torch",
    "torch._dynamo",  # the first step of any optimizer imports it
    "torch.export._trace",
    "networkx",  # and an export of a model this
    "torch_geometric.data",
    "dask.array",
    "h5py",
    "h5netcdf",
    "xarray",
    "pandas",
    "pydantic",
    "scipy.linalg",
    "scipy.optimize",
    "matplotlib.figure",
    "safetensors.torch",
    "scitoolkit",
)
# Modules of scitoolkit that few commands need: contract suites, kernels of GPUs, scikit-learn.
SELDOM = ("testing", "triton", "gpu", "estimators", "server", "__main__")


class WarmStart:
    """A server of forks, to be closed.

    Args:
        variables: environment of the server, and of commands that state none.
        prepare: name of a function without arguments that a preloaded library exports; called in
            every fork once its environment is set.
        finish: name of such a function, called at the end of every fork.
    """

    def __init__(self, variables: Mapping[str, str], prepare: str = "", finish: str = "") -> None:
        replies, theirs = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs), prepare, finish],
            stdin=subprocess.PIPE,
            pass_fds=(theirs,),
            env=dict(variables),
            text=True,
        )
        os.close(theirs)
        self._replies = os.fdopen(replies, encoding="utf-8")
        self._variables = dict(variables)

    def run(
        self,
        folder: Path,
        arguments: Sequence[str],
        variables: Mapping[str, str] | None = None,
        timeout: float = 240,
        script: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run the command in a folder; output as text, as `subprocess.run` returns it.

        Args:
            folder: current folder of the command.
            arguments: of the command.
            variables: added to those of the server.
            timeout: seconds.
            script: Python file to run instead of `scitoolkit`.

        Raises:
            subprocess.TimeoutExpired: it was killed after so many seconds.
        """
        outputs = [os.memfd_create(name) for name in ("stdout", "stderr")]
        try:
            request = {
                "folder": str(folder),
                "script": str(script or ""),
                "arguments": list(arguments),
                "variables": {**self._variables, **(variables or {})},
                "outputs": [f"/proc/{os.getpid()}/fd/{file}" for file in outputs],
            }
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            child = int(self._reply(240))  # the first one waits for the imports of the server
            try:
                code = int(self._reply(timeout))
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                self._reply(60)
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
            texts = [_text(file) for file in outputs]
        finally:
            for file in outputs:
                os.close(file)
        out, err = texts
        return subprocess.CompletedProcess(list(arguments), code, out, FROZEN.sub("", err))

    def _reply(self, seconds: float) -> str:
        if not select.select([self._replies], [], [], seconds)[0]:
            raise TimeoutError
        line = self._replies.readline()
        assert line, "the server of warm starts ended"
        return line

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._replies.close()


def _text(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file), encoding="utf-8", errors="backslashreplace") as stream:
        return stream.read()


def _serve(replies: int, prepare: str) -> dict | None:
    """Fork once a request; return it in the fork, and None at the end of the requests."""
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.close(replies)
            _become(request, prepare)
            return request
        os.write(replies, f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(replies, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    return None


class ForkedRank(Rank):
    """A rank of `--nproc` as a fork of the launcher."""

    def begin(
        self,
        module: str,
        arguments: list[str],
        variables: Mapping[str, str],
        prepare: Callable[[], None],
    ) -> None:
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            os.setsid()
            prepare()
            for number in (signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.clear()
            os.environ.update(variables)
            code = _module(module, arguments)
        finally:
            os._exit(code)

    def poll(self) -> int | None:
        return self._reaped(os.WNOHANG)

    def wait(self) -> int | None:
        return self._reaped(0)

    def _reaped(self, flags: int) -> int | None:
        if self.code is None:
            found, status = os.waitpid(self.pid, flags)
            self.code = os.waitstatus_to_exitcode(status) if found else None
        return self.code


def _module(name: str, arguments: Sequence[str]) -> int:
    """Run a module as `python -m NAME` does; return its exit code."""
    import runpy

    sys.argv = [name, *arguments]
    if name != "scitoolkit":  # a package; of an imported module runpy warns
        sys.modules.pop(name, None)
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _become(request: dict, prepare: str) -> None:
    with open(os.devnull, encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 0)
    for number, name in enumerate(request["outputs"], 1):
        file = os.open(name, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    if prepare:
        ctypes.CDLL(None)[prepare]()


def _end(code: int, finish: str) -> NoReturn:
    """End a fork as the interpreter does, except that no module or library is taken apart."""
    threading._shutdown()
    atexit._run_exitfuncs()
    gc.collect()  # what the server has imported is frozen
    sys.stdout.flush()
    sys.stderr.flush()
    if finish:
        ctypes.CDLL(None)[finish]()
    os._exit(code)


def _import(name: str) -> None:
    """Import a module, if its dependencies are installed, and those of the package below it."""
    module = None
    with contextlib.suppress(ImportError):
        module = importlib.import_module(name)
    if name.startswith("scitoolkit") and hasattr(module, "__path__"):
        for part in pkgutil.iter_modules(module.__path__):
            if not any(word in part.name for word in SELDOM):
                _import(f"{name}.{part.name}")


def main() -> None:
    """Import the package, then serve; in a fork, run the command line or the script."""
    import runpy

    for name in MODULES:
        _import(name)
    gc.freeze()  # forks do not copy pages by collecting what they share
    replies, prepare, finish = sys.argv[1:]
    request = _serve(int(replies), prepare)
    if request is None:
        os._exit(0)  # without the report on what is frozen
    from scitoolkit.training import launch

    launch.subprocess = SimpleNamespace(Popen=ForkedRank)
    script, arguments = request["script"], request["arguments"]
    if script:
        sys.path[0] = str(Path(script).parent)
        sys.argv = [script, *arguments]
        runpy.run_path(script, run_name="__main__")
        _end(0, finish)
    _end(_module("scitoolkit", arguments), finish)


if __name__ == "__main__":
    main()

"""Command lines in forks of one process that has imported the package.

A fork behaves as a new process does, from its arguments to its exit code, the finalisers of the
interpreter included. It spares the two seconds that the import of torch takes, which is most of the
time of a small command. `python warm_start.py REPLIES PREPARE SCRIPT` is the server: a JSON object
a line on standard input starts a command, and its exit code comes back on the descriptor REPLIES.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from rank_process import Rank

# A frozen object lives until its process ends, which the bindings of Triton report as leaks.
FROZEN = re.compile(r"^(nanobind: | - leaked | - \.\.\. skipped|See https://nanobind).*\n?", re.M)

# What commands import in any case; nothing in it starts a thread.
MODULES = (
    "torch",
    "torch._dynamo",  # the first step of any optimizer imports it
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
    "scitoolkit.cli.main",
    "scitoolkit.api",
    "scitoolkit.training.trainer",
)


class WarmStart:
    """A server of forks, to be closed.

    Args:
        variables: environment of the server, and of commands that state none.
        prepare: name of a function without arguments that a preloaded library exports; called in
            every fork once its environment is set.
        script: Python file to run instead of `scitoolkit`.
    """

    def __init__(
        self, variables: Mapping[str, str], prepare: str = "", script: Path | None = None
    ) -> None:
        replies, theirs = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs), prepare, str(script or "")],
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
    ) -> subprocess.CompletedProcess[str]:
        """Run the command in a folder; output as text, as `subprocess.run` returns it.

        Raises:
            subprocess.TimeoutExpired: it was killed after so many seconds.
        """
        outputs = [os.memfd_create(name) for name in ("stdout", "stderr")]
        try:
            request = {
                "folder": str(folder),
                "arguments": list(arguments),
                "variables": {**self._variables, **(variables or {})},
                "outputs": [f"/proc/{os.getpid()}/fd/{file}" for file in outputs],
            }
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            child = int(self._reply(60))
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


def _serve(replies: int, prepare: str) -> list[str]:
    """Fork once a request; return its arguments in the fork, [] at the end of the requests."""
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.close(replies)
            _become(request, prepare)
            return request["arguments"]
        os.write(replies, f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(replies, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    return []


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


def main() -> None:
    """Import the package, then serve; in a fork, run the command line or the script."""
    import importlib
    import runpy

    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    script = sys.argv[3]
    if script:
        sys.path[0] = str(Path(script).parent)
        runpy.run_path(script)  # its imports
    gc.freeze()  # forks do not copy pages by collecting what they share
    arguments = _serve(int(sys.argv[1]), sys.argv[2])
    if not arguments:
        os._exit(0)  # without the report on what is frozen
    if script:
        sys.argv = [script, *arguments]
        runpy.run_path(script, run_name="__main__")
    else:
        from scitoolkit.training import launch

        launch.subprocess = SimpleNamespace(Popen=ForkedRank)
        sys.exit(_module("scitoolkit", arguments))


if __name__ == "__main__":
    main()

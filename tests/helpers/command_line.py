"""The command line, and code of pages, in a separate process."""

from __future__ import annotations

import atexit
import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warm_start import WarmStart


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


def run_process(folder: Path, *arguments: str, timeout: float = 240) -> Outcome:
    """Run the command line in a folder, in a fork of a process that has imported the package."""
    return _run(None, folder, [str(argument) for argument in arguments], timeout)


def run_code(folder: Path, code: str, timeout: float = 240, **variables: str) -> Outcome:
    """Run Python code in a folder, in such a fork, with warnings as errors."""
    return _run(Path(__file__).with_name("run_code.py"), folder, [code], timeout, variables)


def _run(
    script: Path | None,
    folder: Path,
    arguments: list[str],
    timeout: float,
    variables: Mapping[str, str] | None = None,
) -> Outcome:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})}
    done = warm_start().run(folder, arguments, environment, timeout, script)
    return Outcome(done.returncode, done.stdout, done.stderr)


@functools.cache
def warm_start() -> WarmStart:
    """Return the server of forks that all tests of a process share: its start takes seconds."""
    server = WarmStart({**os.environ, "OMP_NUM_THREADS": "1"})
    atexit.register(server.close)
    return server

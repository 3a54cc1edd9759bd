"""The command line in a separate process."""

from __future__ import annotations

import atexit
import functools
import json
import os
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
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = _server().run(folder, [str(each) for each in arguments], variables, timeout)
    return Outcome(done.returncode, done.stdout, done.stderr)


@functools.cache
def _server() -> WarmStart:
    server = WarmStart({**os.environ, "OMP_NUM_THREADS": "1"})
    atexit.register(server.close)
    return server

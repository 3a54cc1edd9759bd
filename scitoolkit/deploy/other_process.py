"""Calls of an exported library in another process, which has no torch, as a program makes them."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from scitoolkit.core.errors import BackendError, ScitoolkitError
from scitoolkit.deploy.library import Array, Call, CompiledSurrogate


@contextlib.contextmanager
def in_other_process(path: Path, where: str) -> Iterator[Call]:
    """Return a call of a library that a new process loads, with the arguments of `Library.run`.

    Args:
        path: the library.
        where: its place, for errors.

    Raises:
        BackendError: by a call, if the library cannot be loaded or ends its process.
    """
    command = [sys.executable, "-m", "scitoolkit.deploy.other_process", str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdin=-1, stdout=-1, env=environment) as process:

        def call(inputs: Sequence[Array], function: str) -> tuple[tuple[Array, ...], Array]:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump((list(inputs), function), process.stdin)
                process.stdin.flush()
                answer = pickle.load(process.stdout)
            except (EOFError, BrokenPipeError):
                raise BackendError(
                    f"the process that called the library ended with status {process.wait()}",
                    where=where,
                    fix="leave device out: C code refuses such a sample alone",
                ) from None
            if isinstance(answer, str):
                raise BackendError(answer, where=where)
            return answer

        try:
            yield call
        finally:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()  # the process ends, and with it its temporary files
            process.wait()


def _serve(path: Path, calls: BinaryIO, answers: BinaryIO) -> None:
    """Answer calls until there are none."""
    surrogate = None
    while True:
        try:
            inputs, function = pickle.load(calls)
        except EOFError:
            return
        try:
            surrogate = surrogate or CompiledSurrogate(path)
            answer: object = surrogate.run(inputs, function)
        except ScitoolkitError as error:
            answer = str(error)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)

"""Worker process that makes samples one after another and sends them through a pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from scitoolkit.core.errors import EXIT_DATA, ScitoolkitError
from scitoolkit.generators.base import Generator, generators
from scitoolkit.generators.extract import Extract
from scitoolkit.generators.workers import Order, begin_worker

MEASURED = 8
"""One of so many samples of a stream has its error measured, as have all stored samples."""


@dataclass(frozen=True)
class Answer:
    """Answer to an order; unless it failed, the arrays follow in a message of bytes.

    Attributes:
        checksum: CRC-32 of the arrays.
        seconds: CPU time.
        error: why the sample failed, or "".
        fatal: whether every other sample would fail too.
        missed: see `Sample`.
    """

    checksum: int = 0
    seconds: float = 0.0
    error: str = ""
    fatal: bool = False
    missed: tuple[str, ...] = ()


def make(generator: Generator, extract: Extract, order: Order, block: np.ndarray) -> Answer:
    """Make a sample and write its arrays into a block; the error of a part is measured."""
    begin = time.process_time()
    try:
        measured = order.index % MEASURED == 0
        sample = generator.sample(order.parameters, order.seed, measured=measured)
        arrays = extract.arrays(generator.with_parameters(order.parameters), sample)
        checksum = extract.pack(arrays, block)
    except ScitoolkitError as error:
        return Answer(error=str(error), fatal=error.exit_code == EXIT_DATA)
    except (MemoryError, OSError) as error:
        return Answer(error=str(error) or "out of memory")
    return Answer(checksum, time.process_time() - begin, missed=tuple(sample.missed))


class WorkerProcess:
    """Handle of a worker process, which has at most one order.

    Args:
        number: of the worker, for messages.
        settings: of the generator.
        extract: the arrays that are sent.
    """

    def __init__(self, number: int, settings: Mapping[str, Any], extract: Extract) -> None:
        self.number: int = number
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        arguments = (theirs, dict(settings), extract)
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.order: Order | None = None
        self.begun = 0.0

    def give(self, order: Order) -> None:
        """Send an order; the death of the process is detected when its answer is read."""
        self.order, self.begun = order, time.monotonic()
        try:
            self.pipe.send(order)
        except OSError:
            pass

    def ready(self) -> bool:
        """Return whether the answer, or the end of the process, can be read."""
        return self.pipe.poll() or not self.process.is_alive()

    def answer(self, block: np.ndarray) -> Answer | None:
        """Return the answer, with the arrays written into `block`; None if the process is dead."""
        try:
            if not self.pipe.poll():
                return None
            answer: Answer = self.pipe.recv()
            if not answer.error:
                self.pipe.recv_bytes_into(block)
        except (EOFError, OSError):
            return None
        self.order = None
        return answer

    def end(self) -> None:
        """Kill the process, which has no state to preserve."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

    @property
    def cause(self) -> str:
        """Why the process died, for messages."""
        self.process.join(1.0)
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"


def _serve(pipe: Connection, settings: dict[str, Any], extract: Extract) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the training process ends its workers
    begin_worker()
    generator = generators.get(settings["name"]).model_validate(settings)
    block = np.empty(extract.size, np.float32)
    parent = os.getppid()
    while parent == os.getppid():
        try:
            answer = make(generator, extract, pipe.recv(), block)
            pipe.send(answer)
            if not answer.error:
                pipe.send_bytes(block.data)
        except (EOFError, OSError):  # the training has ended, or was killed
            return

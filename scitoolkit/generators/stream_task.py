"""Making of one sample of a stream, in this process or in a worker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scitoolkit.core.errors import EXIT_DATA, ScitoolkitError
from scitoolkit.core.worker_process import Send
from scitoolkit.generators.base import Generator, generators
from scitoolkit.generators.extract import Extract
from scitoolkit.generators.workers import Order

MEASURED = 8
"""One of so many samples of a stream has its error measured, as have all stored samples."""


@dataclass(frozen=True)
class Answer:
    """Answer to an order.

    Attributes:
        values: the arrays of the sample one after another, float32; None if it failed.
        checksum: CRC-32 of the arrays.
        seconds: CPU time.
        error: why the sample failed, or "".
        fatal: whether every other sample would fail too.
        missed: see `Sample`.
    """

    values: np.ndarray | None = None
    checksum: int = 0
    seconds: float = 0.0
    error: str = ""
    fatal: bool = False
    missed: tuple[str, ...] = ()


def make(generator: Generator, extract: Extract, order: Order) -> Answer:
    """Return the sample of an order, or why it failed; the error of a part is measured."""
    begin = time.process_time()
    values = np.empty(extract.size, np.float32)
    try:
        measured = order.index % MEASURED == 0
        sample = generator.sample(order.parameters, order.seed, measured=measured)
        arrays = extract.arrays(generator.with_parameters(order.parameters), sample)
        checksum = extract.pack(arrays, values)
    except ScitoolkitError as error:
        return Answer(error=str(error), fatal=error.exit_code == EXIT_DATA)
    except (MemoryError, OSError) as error:
        return Answer(error=str(error) or "out of memory")
    return Answer(values, checksum, time.process_time() - begin, missed=tuple(sample.missed))


@dataclass(frozen=True)
class MakeInWorker:
    """What a worker of a stream does with an order.

    Args:
        settings: of the generator, whose class the worker loads by its name.
        extract: the arrays that are taken from a sample.
    """

    settings: Mapping[str, Any]
    extract: Extract

    @cached_property
    def _generator(self) -> Generator:
        return generators.get(self.settings["name"]).model_validate(self.settings)

    def __call__(self, order: Order, _: Send) -> Answer:
        """Return the sample, or why it failed."""
        return make(self._generator, self.extract, order)

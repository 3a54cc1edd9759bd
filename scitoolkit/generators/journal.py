"""Journal of a stream of samples, with which a resumed run repeats it bit for bit.

Each event is one JSON line, appended before it can affect the training. A process that is killed
while writing leaves at most an incomplete last line, which no checkpoint depends on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import CheckpointError, DataError
from scitoolkit.core.files import write_atomic


@dataclass(frozen=True)
class Made:
    """Record of a finished sample.

    Attributes:
        number: of the sample.
        asked: ordered parameters.
        parameters: actual parameters, which differ after a failure.
        seed: of the sample.
        attempt: number of failures before it.
        checksum: CRC-32 of its arrays.
    """

    number: int
    asked: Mapping[str, float]
    parameters: Mapping[str, float]
    seed: int
    attempt: int
    checksum: int


class Journal:
    """Append-only file of events, which is read at the start.

    Args:
        path: of the file; None for a journal in memory.

    Raises:
        DataError: the file cannot be written; finished samples are not affected.
    """

    def __init__(self, path: Path | None) -> None:
        self.path: Path | None = path
        self._asked: dict[int, dict[str, float]] = {}
        self._made: dict[int, Made] = {}
        if path is not None and path.exists():
            # An incomplete last line is cut off: the next event would be appended to it.
            whole = path.read_bytes().rpartition(b"\n")[0]
            for number, line in enumerate(whole.splitlines(), 1):
                try:
                    self._read(json.loads(line))
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    raise DataError(
                        f"damaged ({type(error).__name__}: {error})",
                        where=f"{path}:{number}",
                        fix="begin a new run: the samples of this one cannot be repeated",
                    ) from None
            write_atomic(path, whole + b"\n" if whole else b"")

    def asked(self, number: int) -> dict[str, float] | None:
        """Return the parameters chosen for a sample, or None."""
        return self._asked.get(number)

    def made(self, number: int, asked: Mapping[str, float]) -> Made | None:
        """Return the record of an order, or None if it is not finished."""
        record = self._made.get(number)
        return record if record is not None and record.asked == dict(asked) else None

    def choose(self, number: int, parameters: Mapping[str, float]) -> None:
        """Record the parameters chosen for a sample."""
        if self._asked.get(number) != dict(parameters):
            self._asked[number] = dict(parameters)
            self._append({"chosen": number, "parameters": dict(parameters)})

    def finish(self, made: Made) -> None:
        """Record a finished sample, or compare it with its earlier record.

        Raises:
            CheckpointError: the same parameters and seed gave a different checksum.
        """
        before = self._made.get(made.number)
        if before == made:
            return
        if before is not None and (before.parameters, before.seed) == (made.parameters, made.seed):
            raise CheckpointError(
                f"sample {made.number} {dict(made.parameters)} differs in bits from the journal",
                where=str(self.path),
                fix="resume with the machine and packages of the first run, or start a new run",
            )
        self._made[made.number] = made
        self._append({"made": asdict(made)})

    def _read(self, event: Mapping[str, Any]) -> None:
        if "made" in event:
            self._made[event["made"]["number"]] = Made(**event["made"])
        else:
            self._asked[event["chosen"]] = event["parameters"]

    def _append(self, event: Mapping[str, object]) -> None:
        if self.path is None:
            return
        text = json.dumps(event) + "\n"
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(
                f"cannot be written ({error.strerror or error})",
                where=str(self.path),
                fix="free space, then --resume: checkpoints and finished samples are kept",
            ) from None

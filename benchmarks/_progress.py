"""Parts of a long benchmark that outlive a stop.

BENCHMARK_PROGRESS names a folder: what is finished is kept there, a line of JSON a part, and a
later run takes it from there. It belongs to one state of the code. Without it nothing is kept.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Progress:
    """The finished parts of one benchmark."""

    def __init__(self, benchmark: str) -> None:
        folder = os.environ.get("BENCHMARK_PROGRESS")
        self.path = Path(folder) / f"{benchmark}.jsonl" if folder else None
        self.parts: dict[str, dict[str, Any]] = {}
        if self.path is not None and self.path.is_file():
            for line in self.path.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.endswith("\n"):  # else the run was stopped while it wrote this line
                    part = json.loads(line)
                    self.parts[part["part"]] = part

    def part(self, name: str, compute: Callable[[], Any]) -> tuple[Any, float]:
        """Return the value of a part, which JSON can hold, and the CPU seconds it took."""
        if name not in self.parts:
            begun = time.process_time()
            value = compute()
            part = {"part": name, "value": value, "cpu_seconds": time.process_time() - begun}
            self.parts[name] = part
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(part) + "\n")
        return self.parts[name]["value"], self.parts[name]["cpu_seconds"]

"""A section of deepmd-kit's `input.json` that records which keys were read."""

from __future__ import annotations

from typing import Any

from scitoolkit.core.config import Problem

# Keys of output files and verbosity, and deepmd-kit's comments.
WITHOUT_EFFECT = {
    "training": {
        "disp_file",
        "disp_training",
        "time_training",
        "profiling",
        "profiling_file",
        "tensorboard",
        "tensorboard_log_dir",
        "tensorboard_freq",
        "save_ckpt",
        "enable_profiler",
        "max_ckpt_keep",
        "stat_file",
    },
    "descriptor": {"precision", "seed", "activation_function"},
    "fitting_net": {"rcond"},
    "model": {"data_stat_nbatch", "data_stat_protect", "data_bias_nsample"},
}


class Section:
    """Section of `input.json` that records which keys were read.

    Args:
        name: dotted name, for messages.
        values: the section, or None.
        problems: list that problems are appended to.
        kind: key of `WITHOUT_EFFECT`; by default the last part of the name.
    """

    def __init__(
        self, name: str, values: Any, problems: list[Problem], kind: str | None = None
    ) -> None:
        self.name: str = name
        self._problems = problems
        kind = kind or name.rpartition(".")[2]
        self._values = {k: v for k, v in dict(values or {}).items() if not k.startswith("_")}
        self._left = set(self._values) - WITHOUT_EFFECT.get(kind, set())

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value and mark its key as read."""
        self._left.discard(key)
        return self._values.get(key, default)

    def number(self, key: str, default: float) -> float:
        """Return a number; a value that is none is refused."""
        value = self.get(key, default)
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            self.refuse(key, f"{value!r} is not a number")
            return float(default)

    def section(self, key: str) -> Section:
        """Return a subsection."""
        return Section(f"{self.name}.{key}", self.get(key), self._problems)

    def sections(self, key: str, kind: str) -> list[Section]:
        """Return the sections of a list, each of the kind `kind`."""
        values = self.get(key) or []
        return [
            Section(f"{self.name}.{key}[{number}]", item, self._problems, kind)
            for number, item in enumerate(values)
        ]

    def refuse(self, key: str, why: str) -> None:
        """Record a problem with a key."""
        self._problems.append(Problem(f"{self.name}.{key}".lstrip("."), why))

    def only(self, key: str, *allowed: Any) -> None:
        """Record a problem if the value of `key` is not among `allowed`."""
        value = self.get(key, allowed[0])
        if value not in allowed:
            self.refuse(key, f"{value!r} is not supported; allowed: {allowed}")

    def close(self) -> None:
        """Record a problem for every unread key."""
        for key in sorted(self._left):
            self.refuse(key, "not supported, and it would change the result")

"""Low-rank surrogates: chosen ranks, replaced layers, and the resulting times and changes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.builder import Processor
from scitoolkit.deploy.library import CompiledSurrogate
from scitoolkit.deploy.rank.clock import Timed, shortest
from scitoolkit.deploy.rank.study import Option, Study, ranks_of, study

ROUNDS = 15
"""Timed calls of the whole surrogate; the shortest counts."""
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
"""Shares of the layers' time that are reported in addition to the requested one."""


@dataclass(frozen=True)
class Lowered:
    """Low-rank surrogate.

    Attributes:
        functions: functions with replaced layers.
        studied: measured options of all layers.
        chosen: {layer: option}.
    """

    functions: Sequence[TracedFunction]
    studied: Study
    chosen: Mapping[str, Option]

    def entry(self, dense_seconds: float, seconds: float) -> dict[str, Any]:
        """Return ranks, times and the Pareto table.

        Args:
            dense_seconds: of a call of the original surrogate.
            seconds: of a call of this one.
        """
        studied, ranks = self.studied, ranks_of(self.chosen)
        rows = []
        for share in SHARES:
            if share >= studied.least_share():
                chosen = studied.chosen(share)
                rows.append(_row(studied, chosen, dense_seconds))
        told = _row(studied, self.chosen, dense_seconds)
        return {
            "ranks": {name: list(own) for name, own in ranks.items()},
            "compressed": list(ranks),
            "dense": [layer.name for layer in studied.layers if layer.name not in ranks],
            "microseconds": {
                "dense": 1e6 * dense_seconds,
                "predicted": told["microseconds"],
                "measured": 1e6 * seconds,
            },
            "layers_time_share": told["time_share"],
            "predicted_change": told["change"],
            "pareto": rows,
        }


def lowered(
    functions: Sequence[TracedFunction],
    typical: Sequence[Sequence[np.ndarray]],
    share: float,
    keep: Sequence[str],
    target: Processor,
    sweep: int,
) -> Lowered:
    """Return functions with the ranks that change outputs least within a share of the layers' time.

    Args:
        functions: float32 functions; not modified.
        typical: typical inputs of each function.
        share: of the measured seconds of the layers.
        keep: names of layers that are not changed.
        target: processor.
        sweep: bytes of the surrogate's weights and workspace.

    Raises:
        ConfigError: see `study`; a share below that of the smallest ranks.
    """
    studied = study(functions, typical, keep, target, sweep)
    chosen = studied.chosen(share)
    return Lowered(studied.lowered(ranks_of(chosen)), studied, chosen)


def _row(studied: Study, chosen: Mapping[str, Option], dense_seconds: float) -> dict[str, float]:
    return {
        "time_share": studied.share(chosen),
        "microseconds": 1e6 * (dense_seconds - studied.gain(chosen)),
        "bytes": 4 * sum(option.weights for option in chosen.values()),
        "change": sum(option.cost for option in chosen.values()) ** 0.5,
        "layers_replaced": len(ranks_of(chosen)),
    }


def call_seconds(
    paths: Sequence[Path], functions: Sequence[TracedFunction], typical: Sequence[Any]
) -> list[float]:
    """Return the shortest seconds of one sample through all functions of each library.

    Args:
        paths: libraries of the same functions.
        functions: their descriptions.
        typical: typical inputs of each function.
    """
    libraries = [CompiledSurrogate(path) for path in paths]
    seconds = np.zeros(len(paths))
    for function, arrays in zip(functions, typical, strict=True):
        timed = []
        for library in libraries:
            about = next(f for f in library.about["functions"] if f["name"] == function.name)
            inputs = [
                np.ascontiguousarray(a if s.shared else a[:1], np.float32)
                for a, s in zip(arrays, function.inputs, strict=True)
            ]
            outputs = [np.empty((1, *o["shape"][1:]), np.float32) for o in about["outputs"]]
            address = ctypes.cast(library.pointer(function.name), ctypes.c_void_p).value
            assert address is not None
            timed.append(Timed(address, [*inputs, *outputs], about["workspace_bytes"]))
        seconds += shortest(timed, ROUNDS)
    return [float(s) for s in seconds]

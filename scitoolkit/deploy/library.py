"""Exported surrogates called from Python through ctypes: no torch in the call."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import BackendError, CheckpointError, DataError
from scitoolkit.deploy.interface import ABI, STATUSES

Array = np.ndarray


class CompiledSurrogate:
    """A surrogate in a shared library; several threads may call it.

    Args:
        path: the library.
        threads: workspace is kept for so many threads of OpenMP.

    Attributes:
        about: what the library says of its functions: arrays, dims, units, boxes.

    Raises:
        CheckpointError: no such library, another ABI, damaged weights, another processor.

    Example:
        surrogate = CompiledSurrogate("model.so")
        (state,), status = surrogate(state)
    """

    def __init__(self, path: Path | str, *, threads: int = 1) -> None:
        path = Path(path)
        if not path.is_file():
            raise CheckpointError(
                "no such file", where=str(path), fix=f"scitoolkit export RUN -o {path}"
            )
        try:
            self._library = ctypes.CDLL(str(path.resolve()))
        except OSError as error:
            raise CheckpointError(f"cannot be loaded ({error})", where=str(path)) from None
        name = path.stem
        self._name = name
        try:
            describe = getattr(self._library, f"{name}_about")
        except AttributeError:
            raise CheckpointError(
                f"no surrogate {name!r} in it",
                where=str(path),
                fix="a library keeps the name that it was exported under",
            ) from None
        describe.restype = ctypes.c_char_p
        self.about: dict[str, Any] = json.loads(describe())
        self._functions = {f["name"]: f for f in self.about["functions"]}
        self._threads = threads
        self._work = threading.local()
        self._check(path)

    def _check(self, path: Path) -> None:
        check = getattr(self._library, f"{self._name}_check")
        check.argtypes = [ctypes.c_int, ctypes.c_int64]
        status = check(ABI, self.about["checksum"])
        if status:
            reason = next(k for k, v in STATUSES.items() if v == status)
            text = {"MISMATCH": f"of ABI {self.about['abi']}, this release reads {ABI}",
                    "CORRUPT": "the weights in it are damaged",
                    "PROCESSOR": "compiled for another processor"}[reason]  # fmt: skip
            raise CheckpointError(text, where=str(path), fix=f"scitoolkit export RUN -o {path}")

    def __call__(self, *inputs: Array, function: str = "") -> tuple[tuple[Array, ...], Array]:
        """Return the outputs, and the status of each sample (0, 1 outside the box, 2 not finite).

        Args:
            inputs: float32 arrays in C order, (samples, *shape); shared ones without samples.
            function: of those in `about`.

        Raises:
            DataError: another number of arrays, another shape, dtype or order.
        """
        about = self._functions[function]
        samples = self._samples(about, inputs)
        outputs = tuple(np.empty((samples, *o["shape"][1:]), np.float32) for o in about["outputs"])
        status = np.zeros(samples, np.int32)
        code = self.pointer(function)(
            samples, *(a.ctypes.data for a in (*inputs, *outputs)), *self.workspace(function),
            status.ctypes.data,
        )  # fmt: skip
        if code > STATUSES["NOT_FINITE"]:
            raise BackendError(f"{about['symbol']} returned status {code}")
        return outputs, status

    def workspace(self, function: str = "") -> tuple[int, int]:
        """Return address and bytes of the workspace of calls from this thread of Python.

        Each thread has one, as ctypes lets several call at a time.
        """
        size = self._functions[function]["workspace_bytes"] * self._threads
        kept: dict[str, Array] = self._work.__dict__
        if function not in kept:
            kept[function] = np.zeros(size, np.uint8)
        return kept[function].ctypes.data, size

    def pointer(self, function: str = "") -> Any:
        """Return the C function, its argument types set."""
        about = self._functions[function]
        found = getattr(self._library, about["symbol"])
        arrays = len(about["inputs"]) + len(about["outputs"])
        found.argtypes = [
            ctypes.c_int64,
            *[ctypes.c_void_p] * (arrays + 1),
            ctypes.c_int64,
            ctypes.c_void_p,
        ]
        return found

    def _samples(self, about: dict[str, Any], inputs: Sequence[Array]) -> int:
        wanted = about["inputs"]
        if len(inputs) != len(wanted):
            raise DataError(
                f"{len(inputs)} arrays",
                where=about["symbol"],
                allowed=", ".join(w["name"] for w in wanted),
            )
        samples = next(
            (len(a) for a, w in zip(inputs, wanted, strict=True) if w["shape"][:1] == [-1]), 1
        )
        for array, want in zip(inputs, wanted, strict=True):
            shape = tuple(samples if n == -1 else n for n in want["shape"])
            if array.shape != shape or array.dtype != np.float32 or not array.flags.c_contiguous:
                order = "C" if array.flags.c_contiguous else "another"
                raise DataError(
                    f"{want['name']} is {array.dtype} {array.shape} in {order} order",
                    where=about["symbol"], allowed=f"float32 {shape} in C order",
                    fix="np.ascontiguousarray(x, dtype=np.float32)",
                )  # fmt: skip
        return samples

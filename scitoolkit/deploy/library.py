"""Calls of exported surrogates from Python through ctypes, without torch."""

from __future__ import annotations

import ctypes
import json
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import BackendError, CheckpointError, DataError
from scitoolkit.deploy.interface import ABI, STATUSES

Array = np.ndarray
Call = Callable[[Sequence[Array], str], tuple[tuple[Array, ...], Array]]


class Functions:
    """Functions of a surrogate, as described: checks of the arrays of calls.

    Args:
        name: for errors.
        about: description with the functions.
    """

    def __init__(self, name: str, about: Mapping[str, Any]) -> None:
        self._name = name
        self._functions: dict[str, dict[str, Any]] = {f["name"]: f for f in about["functions"]}

    def shared(self, function: str = "") -> bool:
        """Return whether a function has inputs that all samples of a call share."""
        return any(i["shape"][:1] != [-1] for i in self._functions[function]["inputs"])

    def samples(self, inputs: Sequence[Array], function: str = "") -> int:
        """Return the number of samples in the arrays of a call.

        Raises:
            DataError: a wrong number of arrays, shape, dtype or order, or no such function.
        """
        about = self._functions.get(function)
        if about is None:
            raise DataError(
                f"no function {function!r}",
                where=self._name,
                allowed=", ".join(map(repr, self._functions)),
            )
        wanted, dtype = about["inputs"], about.get("dtype", "float32")
        if len(inputs) != len(wanted):
            raise DataError(
                f"{len(inputs)} arrays",
                where=about["symbol"],
                allowed=", ".join(w["name"] for w in wanted),
            )
        samples = next(
            (
                len(a)
                for a, w in zip(inputs, wanted, strict=True)
                if w["shape"][:1] == [-1] and np.ndim(a)
            ),
            1,
        )
        for array, want in zip(inputs, wanted, strict=True):
            shape = tuple(samples if n == -1 else n for n in want["shape"])
            if (
                not isinstance(array, np.ndarray)
                or array.shape != shape
                or array.dtype != dtype
                or not array.flags.c_contiguous
            ):
                one = shape != np.shape(array) == tuple(want["shape"][1:])
                raise DataError(
                    f"{want['name']} is {_told(array)}",
                    where=about["symbol"],
                    allowed=f"{dtype} {('samples', *shape[1:]) if one else shape} in C order",
                    fix="x[None]: the first dim counts samples"
                    if one
                    else f"np.ascontiguousarray(x, dtype=np.{dtype})",
                )
        return samples

    def answers(self, samples: int, function: str = "") -> tuple[tuple[Array, ...], Array]:
        """Return arrays for the outputs of a call, and zeros for the status of each sample."""
        about = self._functions[function]
        dtype = about.get("dtype", "float32")
        outputs = tuple(np.empty((samples, *o["shape"][1:]), dtype) for o in about["outputs"])
        return outputs, np.zeros(samples, np.int32)


class Library(Functions):
    """Generated code in a shared library; thread-safe.

    Args:
        path: the library.
        name: prefix of its functions.
        threads: number of OpenMP threads that workspace is allocated for.

    Attributes:
        about: description of the functions, from the library.

    Raises:
        CheckpointError: no such library, another ABI, damaged weights, or another processor.
    """

    def __init__(self, path: Path, name: str, *, threads: int = 1) -> None:
        if not path.is_file():
            raise CheckpointError(
                "no such file", where=str(path), fix=f"scitoolkit export RUN -o {path}"
            )
        self._library = _loaded(path)
        try:
            describe = getattr(self._library, f"{name}_about")
        except AttributeError:
            raise CheckpointError(
                f"it contains no surrogate {name!r}",
                where=str(path),
                fix="do not rename exported libraries",
            ) from None
        describe.restype = ctypes.c_char_p
        self.about: dict[str, Any] = json.loads(describe())
        super().__init__(name, self.about)
        self._threads = threads
        self._work = threading.local()
        self._check(path)

    def _check(self, path: Path) -> None:
        check = getattr(self._library, f"{self._name}_check")
        check.argtypes = [ctypes.c_int, ctypes.c_int64]
        status = check(ABI, self.about["checksum"])
        if status:
            reason = next(k for k, v in STATUSES.items() if v == status)
            device = self.about.get("device")
            text = {
                "MISMATCH": f"of ABI {self.about['abi']}, this release reads {ABI}",
                "CORRUPT": "the weights in it are damaged",
                "PROCESSOR": f"compiled for {device}, which cannot run it here"
                if device
                else "compiled for another processor",
            }[reason]
            raise CheckpointError(text, where=str(path), fix=f"scitoolkit export RUN -o {path}")

    def run(
        self, inputs: Sequence[Array], function: str = "", leading: Sequence[int] = ()
    ) -> tuple[tuple[Array, ...], Array]:
        """Return the outputs and the status of each sample (0, 1 outside the box, 2 not finite).

        Args:
            inputs: arrays in C order, (samples, *shape); shared ones without samples.
            function: name of a function in `about`.
            leading: addresses of additional first arguments.

        Raises:
            DataError: a wrong number of arrays, shape, dtype or order, or no such function.
        """
        samples = self.samples(inputs, function)
        about = self._functions[function]
        outputs, status = self.answers(samples, function)
        code = self.pointer(function, len(leading))(
            *leading,
            samples,
            *(a.ctypes.data for a in (*inputs, *outputs)),
            *self.workspace(function),
            status.ctypes.data,
        )
        if code > STATUSES["NOT_FINITE"]:
            raise BackendError(f"{about['symbol']} returned status {code}")
        return outputs, status

    def workspace(self, function: str = "") -> tuple[int, int]:
        """Return address and size of the workspace of this Python thread.

        Each thread has one, as ctypes releases the GIL.
        """
        size = self._functions[function]["workspace_bytes"] * self._threads
        buffers: dict[str, Array] = self._work.__dict__
        if function not in buffers:
            buffers[function] = np.zeros(size, np.uint8)
        return buffers[function].ctypes.data, size

    def pointer(self, function: str = "", leading: int = 0) -> Any:
        """Return the C function with its argument types set, after `leading` addresses."""
        about = self._functions[function]
        entry = getattr(self._library, about["symbol"])
        arrays = len(about["inputs"]) + len(about["outputs"])
        entry.argtypes = [
            *[ctypes.c_void_p] * leading,
            ctypes.c_int64,
            *[ctypes.c_void_p] * (arrays + 1),
            ctypes.c_int64,
            ctypes.c_void_p,
        ]
        return entry


def _loaded(path: Path) -> ctypes.CDLL:
    """Load a copy of a library under a new name.

    The dynamic loader compares names before files: a path that was loaded before returns the
    library of that time, also after another one was written there.
    """
    with tempfile.NamedTemporaryFile(prefix="scitoolkit-", suffix=".so") as copy:
        copy.write(path.read_bytes())
        copy.flush()
        try:
            return ctypes.CDLL(copy.name)
        except OSError as error:
            raise CheckpointError(
                f"cannot be loaded ({error})",
                where=str(path),
                fix="export it again; if the temporary folder allows no programs, set TMPDIR",
            ) from None


def _told(array: Any) -> str:
    if not isinstance(array, np.ndarray):
        return f"a {type(array).__name__}"
    order = "C" if array.flags.c_contiguous else "another"
    return f"{array.dtype} {array.shape} in {order} order"


class CompiledSurrogate(Library):
    """A surrogate in a shared library; thread-safe.

    Args:
        path: the library, under the name that it was exported with.
        threads: number of OpenMP threads that workspace is allocated for.

    Attributes:
        about: description of the functions: arrays, dims, units, boxes.

    Raises:
        CheckpointError: no such library, another ABI, damaged weights, or another processor.

    Example:
        surrogate = CompiledSurrogate("model.so")
        (state,), status = surrogate(state)
    """

    def __init__(self, path: Path | str, *, threads: int = 1) -> None:
        super().__init__(Path(path), Path(path).stem, threads=threads)

    def __call__(self, *inputs: Array, function: str = "") -> tuple[tuple[Array, ...], Array]:
        """Return the outputs and the status of each sample (0, 1 outside the box, 2 not finite).

        Args:
            inputs: arrays in C order, (samples, *shape); shared ones without samples.
            function: name of a function in `about`.

        Raises:
            DataError: a wrong number of arrays, shape, dtype or order, or no such function.
        """
        return self.run(inputs, function)

"""Interface to exported potentials through ctypes."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from scitoolkit.core.errors import CheckpointError, ConfigError, DataError, NumericalError
from scitoolkit.potentials.export.folder import LIBRARY, WEIGHTS

ABI = 2
_P, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


class _Info(ctypes.Structure):
    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        *(
            (name, _I32)
            for name in ("abi", "num_species", "widest_row", "real_bytes", "device", "reserved")
        ),
        ("cutoff", ctypes.c_double),
        ("species", ctypes.POINTER(ctypes.c_char_p)),
        ("instructions", ctypes.c_char_p),
    ]


class _Graph(ctypes.Structure):
    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("owned", _I64),
        ("all", _I64),
        *((name, _P) for name in ("ptr", "sender", "vector", "species")),
    ]


class _Exchange(ctypes.Structure):
    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [("width", _I32), ("rows", _P)]


class PotentialLibrary:
    """A compiled potential with its weights.

    Args:
        source: folder written by `scitoolkit export`, or a loaded library and the contents of its
            weights file.
        threads: number of OpenMP threads.

    Attributes:
        species: type map.
        cutoff: Å.
        instructions: instruction set of the kernels in use.
        real_bytes: bytes of a number of the arithmetic, 4 or 8.

    Raises:
        CheckpointError: the library is truncated or has another ABI, or the weights do not fit.
    """

    species: tuple[str, ...]
    cutoff: float
    instructions: str
    real_bytes: int

    def __init__(self, source: Path | str | tuple[ctypes.CDLL, bytes], *, threads: int = 1) -> None:
        self.threads = threads
        self._kept = (
            threading.local()
        )  # ctypes releases the GIL: Python threads may call concurrently
        message = ctypes.create_string_buffer(512)
        if isinstance(source, tuple):
            self._library, weights = _declared(source[0]), source[1]
            self._model = self._library.stk_open_memory(weights, len(weights), message, 512)
        else:
            path = Path(source) / LIBRARY
            _check_whole(path)
            self._library = _open(path)
            self._model = self._library.stk_open(str(Path(source) / WEIGHTS).encode(), message, 512)
        if not self._model:
            raise CheckpointError(message.value.decode(), fix="scitoolkit export RUN -o FOLDER")
        about = self._library.stk_about(self._model).contents
        self.species = tuple(about.species[k].decode() for k in range(about.num_species))
        self.cutoff, self.real_bytes = float(about.cutoff), int(about.real_bytes)
        self.instructions = about.instructions.decode()

    def __del__(self) -> None:
        """Release the weights."""
        if getattr(self, "_model", None):
            self._library.stk_close(self._model)
            self._model = None

    def compute(
        self, positions: np.ndarray, species: np.ndarray, cell: np.ndarray, pbc: np.ndarray
    ) -> dict[str, Any]:
        """Return `energy`, `atomic_energy` (N,), `forces` (N, 3) and `virial` (3, 3); eV and Å.

        Args:
            positions: (N, 3) Å.
            species: (N,) indices into `species`.
            cell: (3, 3), rows are lattice vectors, Å; regular if a direction is periodic.
            pbc: (3,) bool.

        Raises:
            DataError: the cell is singular, a species is unknown, or two atoms coincide.
            NumericalError: positions or weights are not finite.
        """
        return self._compute(self._library.stk_compute, self._model, positions, species, cell, pbc)

    def moving(self, skin: float = 0.5) -> MovingSystem:
        """Return an object that computes one moving system with a cached neighbour list.

        Args:
            skin: Å by which the list reaches beyond the cutoff; it is rebuilt when an atom has
                moved by half of it, or the atoms, species, cell or boundary conditions change.

        Raises:
            ConfigError: the skin is negative.
        """
        return MovingSystem(self, skin)

    def _compute(
        self,
        function: Any,
        handle: Any,
        positions: np.ndarray,
        species: np.ndarray,
        cell: np.ndarray,
        pbc: np.ndarray,
    ) -> dict[str, Any]:
        atoms = len(positions)
        inputs: list[np.ndarray[Any, Any]] = [
            np.ascontiguousarray(positions, dtype=np.float64),
            np.ascontiguousarray(species, dtype=np.int32),
            np.ascontiguousarray(cell, dtype=np.float64),
            np.ascontiguousarray(pbc, dtype=np.int32),
        ]
        energy, atomic = np.zeros(1), np.zeros(atoms)
        forces, virial = np.zeros((atoms, 3)), np.zeros((3, 3))
        results: list[np.ndarray[Any, Any]] = [energy, atomic, forces, virial]
        state = function(
            handle,
            atoms,
            *(a.ctypes.data for a in inputs),
            self.threads,
            *(a.ctypes.data for a in results),
        )
        _check_state(state, inputs[0])
        return {
            "energy": float(energy[0]),
            "atomic_energy": atomic,
            "forces": forces,
            "virial": virial,
        }

    def compute_many(
        self,
        first: np.ndarray,
        positions: np.ndarray,
        species: np.ndarray,
        cells: np.ndarray,
        pbc: np.ndarray,
    ) -> dict[str, Any]:
        """Compute S systems in parallel, one thread for each system.

        Args:
            first: (S + 1,) index of the first atom of each system.
            positions: (N, 3) of all systems, Å.
            species: (N,) indices into `species`.
            cells: (S, 3, 3), rows are lattice vectors, Å.
            pbc: (S, 3) bool.

        Returns:
            energy (S,), atomic_energy (N,), forces (N, 3), virial (S, 3, 3), float64.

        Raises:
            DataError: a cell is singular, a species is unknown, or two atoms coincide.
            NumericalError: positions or weights are not finite.
        """
        systems, atoms = len(first) - 1, len(positions)
        if first[0] != 0 or first[-1] != atoms or (np.diff(first) < 0).any():
            raise DataError(
                f"first is not ascending from {first[0]} to {first[-1]}", allowed=f"0 to {atoms}"
            )
        inputs: list[np.ndarray[Any, Any]] = [
            np.ascontiguousarray(first, dtype=np.int64),
            np.ascontiguousarray(positions, dtype=np.float64),
            np.ascontiguousarray(species, dtype=np.int32),
            np.ascontiguousarray(cells, dtype=np.float64),
            np.ascontiguousarray(pbc, dtype=np.int32),
        ]
        outputs: dict[str, np.ndarray[Any, Any]] = {
            "energy": np.zeros(systems),
            "atomic_energy": np.zeros(atoms),
            "forces": np.zeros((atoms, 3)),
            "virial": np.zeros((systems, 3, 3)),
        }
        state = self._library.stk_compute_many(
            self._model,
            systems,
            *(a.ctypes.data for a in inputs),
            self.threads,
            *(a.ctypes.data for a in outputs.values()),
        )
        _check_state(state, inputs[1])
        return outputs

    def evaluate(
        self, ptr: np.ndarray, sender: np.ndarray, vectors: np.ndarray, species: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return atomic energies (N,), eV, and dE/d(edge vector) (E, 3), eV/Å, of a graph.

        Args:
            ptr: (N + 1,) int64, index of the first edge of each receiver.
            sender: (E,) int32.
            vectors: (E, 3) float64, Å, from receiver to sender.
            species: (N,) int32, indices into `species`.

        Raises:
            DataError: the graph is invalid, or two atoms coincide.
            NumericalError: positions or weights are not finite.
        """
        atoms, edges = len(species), len(sender)
        energy, gradient = np.empty(atoms), np.empty((edges, 3))
        inputs: list[np.ndarray[Any, Any]] = [ptr, sender, vectors, species]
        graph = _Graph(atoms, atoms, *(a.ctypes.data for a in inputs))
        size = self._library.stk_workspace(self._model, atoms, atoms, edges, self.threads) + 64
        space = getattr(self._kept, "space", None)
        if space is None or len(space) < size:
            space = self._kept.space = np.empty(size, dtype=np.uint8)
        start = space.ctypes.data
        run = self._library.stk_begin(
            self._model,
            ctypes.byref(graph),
            start + -start % 64,
            self.threads,
            energy.ctypes.data,
            gradient.ctypes.data,
        )
        _check_state(0 if run else -1)
        exchange, state = _Exchange(), 1
        while state > 0:  # without ghosts there is nothing to exchange
            state = self._library.stk_advance(run, ctypes.byref(exchange))
        _check_state(state)
        return energy, gradient


class MovingSystem:
    """A moving system whose neighbour list and memory are reused between calls.

    Args:
        library: of the model.
        skin: Å, see `PotentialLibrary.moving`.
    """

    def __init__(self, library: PotentialLibrary, skin: float) -> None:
        self._library = library  # which must outlive the list
        self._list = library._library.stk_list_new(library._model, skin)
        if not self._list:
            raise ConfigError(f"a skin of {skin} Å", where="skin", allowed="0 and more")

    def __del__(self) -> None:
        """Release the list."""
        if getattr(self, "_list", None):
            self._library._library.stk_list_free(self._list)
            self._list = None

    @property
    def lists_made(self) -> int:
        """Number of times that the neighbour list was built."""
        return int(self._library._library.stk_list_made(self._list))

    def compute(
        self, positions: np.ndarray, species: np.ndarray, cell: np.ndarray, pbc: np.ndarray
    ) -> dict[str, Any]:
        """Return the result of `PotentialLibrary.compute`."""
        function = self._library._library.stk_compute_listed
        return self._library._compute(function, self._list, positions, species, cell, pbc)


def _open(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
        abi = library.stk_abi()
    except (OSError, AttributeError) as error:
        raise CheckpointError(
            f"not the library of an exported potential ({error})",
            where=str(path),
            fix="scitoolkit export RUN -o FOLDER",
        ) from None
    if abi != ABI:
        raise CheckpointError(
            f"a library of ABI {abi}; this version of scitoolkit supports {ABI}",
            where=str(path),
            fix="scitoolkit export RUN -o FOLDER",
        )
    return _declared(library)


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """Set the signatures of the library's functions and return the library."""
    library.stk_open.restype = library.stk_open_memory.restype = _P
    library.stk_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p, _I64]
    library.stk_open_memory.argtypes = [ctypes.c_char_p, _I64, ctypes.c_char_p, _I64]
    library.stk_close.argtypes = [_P]
    library.stk_about.restype, library.stk_about.argtypes = ctypes.POINTER(_Info), [_P]
    library.stk_workspace.restype = _I64
    library.stk_workspace.argtypes = [_P, _I64, _I64, _I64, _I32]
    library.stk_begin.restype = _P
    library.stk_begin.argtypes = [_P, ctypes.POINTER(_Graph), _P, _I32, _P, _P]
    library.stk_advance.argtypes = [_P, ctypes.POINTER(_Exchange)]
    library.stk_compute.argtypes = [_P, _I64, _P, _P, _P, _P, _I32, _P, _P, _P, _P]
    library.stk_list_new.restype, library.stk_list_new.argtypes = _P, [_P, ctypes.c_double]
    library.stk_list_free.argtypes = [_P]
    library.stk_list_made.restype, library.stk_list_made.argtypes = _I64, [_P]
    library.stk_compute_listed.argtypes = library.stk_compute.argtypes
    library.stk_compute_many.argtypes = [_P, _I64, *[_P] * 5, _I32, *[_P] * 4]
    return library


def _check_whole(path: Path) -> None:
    """Refuse a truncated shared library, which would crash when loaded."""
    try:
        head, size = path.read_bytes()[:64], path.stat().st_size
    except OSError as error:
        raise CheckpointError(
            f"no library of an exported potential ({error.strerror})",
            where=str(path),
            fix="scitoolkit export RUN -o FOLDER, or cmake -B build && cmake --build build in it",
        ) from None
    if head[:4] != b"\x7fELF":
        return
    (sections,) = struct.unpack_from("<Q", head.ljust(64, b"\0"), 40)
    entry_size, number = struct.unpack_from("<2H", head.ljust(64, b"\0"), 58)
    if size < 64 or sections + entry_size * number > size:
        raise CheckpointError(
            f"a truncated library of {size} bytes",
            where=str(path),
            fix="scitoolkit export RUN -o FOLDER",
        )


def _check_state(state: int, positions: np.ndarray | None = None) -> None:
    """Raise the error of a state; `positions` name the atom whose position is not finite."""
    if state == -1:
        raise DataError(
            "invalid atoms: a singular cell, a species beyond the type map, or too many neighbours "
            "of one atom"
        )
    if state == -3:
        raise DataError("two atoms are less than 0.001 Å apart")
    if state < 0:
        if positions is not None and not np.isfinite(positions).all():
            atom = int(np.isfinite(positions).all(axis=1).argmin())
            raise NumericalError(f"the position of atom {atom} is not finite")
        raise NumericalError("an energy is not finite: positions or weights are not")

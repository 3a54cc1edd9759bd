"""Inference of a potential through its C library in this process, with little memory per atom.

The library computes the radial weights for blocks of receivers without storing them; see
`export/c/message_passing.h`. It is compiled into the kernel cache and reloaded when the weights
change.
"""

from __future__ import annotations

import pkgutil
import weakref
from logging import Logger

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import BackendError, NumericalError
from scitoolkit.core.log import get_logger
from scitoolkit.ops import neighbours
from scitoolkit.potentials.export.folder import load_native
from scitoolkit.potentials.export.library import PotentialLibrary
from scitoolkit.potentials.graph import edge_vectors

log: Logger = get_logger(__name__)
_kept: weakref.WeakKeyDictionary[nn.Module, tuple[object, PotentialLibrary | None]]
_kept = weakref.WeakKeyDictionary()


def streamed_library(model: nn.Module, make: str) -> PotentialLibrary | None:
    """Return the library of a model with its current weights, or None if it is not available.

    Args:
        model: in evaluation mode; parameters and buffers on the CPU.
        make: function that returns the model's `LibrarySource`, as `module:name`.
    """
    tensors = [*model.parameters(), *model.buffers()]
    key = tuple((tensor.data_ptr(), tensor._version) for tensor in tensors)
    held = _kept.get(model)
    if held is None or held[0] != key:
        held = _kept[model] = (key, _library(model, make, tensors))
    if held[1] is not None:
        held[1].threads = torch.get_num_threads()
    return held[1]


def _library(model: nn.Module, make: str, tensors: list[Tensor]) -> PotentialLibrary | None:
    if not neighbours.available() or any(tensor.device.type != "cpu" for tensor in tensors):
        return None
    try:
        return PotentialLibrary(load_native(pkgutil.resolve_name(make)(model)))
    except (BackendError, NumericalError) as error:
        log.warning("evaluating without the C library, which requires more memory: %s", error)
        return None


def edge_gradients(library: PotentialLibrary, graph: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return atomic energies (N,), edge vectors (E, 3) and dE/d(edge vector) (E, 3), float64.

    Edges beyond the cutoff are allowed and have zero gradient.

    Args:
        library: of the model.
        graph: see `potentials.graph`.
    """
    vectors = edge_vectors(graph)
    energy, gradient = library.evaluate(
        receiver_ptr(graph),
        graph["edge_index"][1].numpy().astype(np.int32),
        np.ascontiguousarray(vectors.numpy()),
        graph["types"].numpy().astype(np.int32),
    )
    return torch.from_numpy(energy), vectors, torch.from_numpy(gradient)


def receiver_ptr(graph: Batch) -> np.ndarray:
    """Return the index of the first edge of each atom, (N + 1,) int64."""
    stride = (len(graph["segments"]) - 1) // max(1, len(graph["types"]))
    return np.ascontiguousarray(graph["segments"].numpy()[:: max(1, stride)])

"""CPU kernels of attention among neighbours: source, packed weights, and calls.

SIMD is over the neighbours of an atom. Products of weights with features, and of features with
attention matrices, are small matrix products whose output has the layout of the next input.
Softmax, normalisations and their derivatives operate on rows, without reductions across lanes.
Since the input of the embedding is a scalar, its tangent is propagated with its value, and no
reverse pass is needed. Both passes of an atom share the data that `attention.c` calls kept, about
1 MB at the default sizes of deepmd-kit, so few atoms should be processed at a time.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError, DataError
from scitoolkit.ops.codegen import REAL, address, call, empty, load_library, vectors
from scitoolkit.ops.codegen.compile import read
from scitoolkit.ops.codegen.emit import banner, indented
from scitoolkit.ops.environment_matrix.cpu import embedding_source
from scitoolkit.ops.neighbour_attention.spec import (
    LayerWeights,
    NeighbourAttentionSpec,
    Neighbours,
    Weights,
)

ROWS = 4  # as in product.c
CACHE_LINE = 64
MOST_LANES = 16


def refusal(spec: NeighbourAttentionSpec) -> str:
    """Return why there are no kernels for a spec, empty if there are."""
    if spec.widths[0] <= 2 or len(spec.widths) > 8:
        return "there is no kernel for embeddings of a first width below 3 or of over 8 layers"
    return ""


def generate(widths: tuple[int, ...], real: str) -> str:
    """Return the C source of the kernels for given widths; `real` is float or double."""
    shape = " x ".join(map(str, widths))
    return "\n".join(
        [
            banner(f"attention among neighbours, embedding of widths {shape}, {real}"),
            indented(vectors.prelude(real)),
            "#define REAL real",
            f"#define IS_DOUBLE {int(real == 'double')}",
            f"#define FIRST_WIDTH {widths[0]}",
            read(vectors.__file__, "vtanh.c"),
            *embedding_source(widths, bias_by_lane=True),
            read(__file__, "product.c"),
            read(__file__, "attention.c"),
        ]
    )


@functools.lru_cache(maxsize=64)
def kernels(spec: NeighbourAttentionSpec, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels of a spec, compiled on first use.

    Raises:
        BackendError: a spec without kernels, no compiler, or a compiler error.
    """
    reason = refusal(spec)
    if reason:
        raise BackendError(reason)
    return _library(spec.widths, dtype)


@functools.lru_cache(maxsize=64)
def _library(widths: tuple[int, ...], dtype: torch.dtype) -> ctypes.CDLL:
    library = load_library(generate(widths, REAL[dtype]))  # other options are run-time arguments
    library.kept_rows.restype = ctypes.c_int64
    library.kept_rows.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    return library


def source(spec: NeighbourAttentionSpec, dtype: torch.dtype) -> str:
    """Return the C source of the kernels of a spec."""
    return generate(spec.widths, REAL[dtype])


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """Weights in the layout of the kernels.

    Attributes:
        embedding: parameters of the embedding, flat.
        first_bias, factors, deviation: see `Weights`.
        whole: integers of the spec.
        numbers: floating numbers of the spec.
        layers: parameters of all attention layers, flat.
    """

    embedding: Tensor
    first_bias: Tensor
    factors: Tensor
    deviation: Tensor
    whole: Tensor
    numbers: Tensor
    layers: Tensor


@torch.no_grad()
def pack(spec: NeighbourAttentionSpec, weights: Weights) -> PackedWeights:
    """Return the weights in the layout of the kernels."""
    flat = [part.flatten() for weight, bias, _ in weights.embedding for part in (weight, bias)]
    first, width = weights.first_bias, _up(spec.attention_width)
    factors, stripped = weights.factors, weights.factors is not None
    layers = [part for layer in weights.layers for part in _packed_layer(layer, width)]
    options = (spec.normalize, spec.smooth, spec.angular, stripped)
    whole = [len(weights.layers), width, width, *map(int, options), spec.sel]
    numbers = [spec.cutoff, spec.cutoff_smooth, spec.scale, spec.norm_epsilon, spec.gate_floor]
    return PackedWeights(
        torch.cat(flat),
        first.contiguous(),
        (first if factors is None else factors).contiguous(),
        weights.deviation.contiguous(),
        torch.tensor(whole),
        first.new_tensor(numbers),
        torch.cat(layers) if layers else first.new_zeros(1),
    )


def _packed_layer(layer: LayerWeights, width: int) -> list[Tensor]:
    """Return the flat parts of a layer in the order of `Layer` in attention.c."""
    basis = len(layer.mix_bias)
    project = _padded(layer.project.view(basis, 3, -1), width).flatten(1)
    bias = _padded(layer.project_bias.view(3, -1), width)
    mix = _padded(layer.mix.T, width)  # (M, H)
    parts = (
        _panels(project.T),
        bias,
        _panels(project),
        _panels(mix),
        _padded(layer.mix_bias, _up(basis)),
        _panels(mix.T),
        layer.norm_weight,
        layer.norm_bias,
    )
    return [part.flatten() for part in parts]


def _up(number: int) -> int:
    return -(-number // ROWS) * ROWS


def _padded(x: Tensor, columns: int) -> Tensor:
    """Return x padded with zeros to a number of columns."""
    return torch.nn.functional.pad(x, (0, columns - x.shape[-1]))


def _panels(matrix: Tensor) -> Tensor:
    """Return a matrix (R, K) as panels (R / ROWS, K, ROWS), padded with zeros."""
    rows, depth = matrix.shape
    padded = torch.nn.functional.pad(matrix, (0, 0, 0, _up(rows) - rows))
    return padded.reshape(-1, ROWS, depth).transpose(1, 2)


class KeptAtoms:
    """Moments of some atoms with the data that the kernels store for their derivatives.

    Args:
        spec: the operation.
        packed: weights of the dtype of the vectors.
        neighbours: edges of all atoms.
        atoms: (n,) int64, the atoms to compute.

    Raises:
        BackendError: see `kernels`.
        DataError: vectors of another dtype than the weights.
    """

    def __init__(
        self,
        spec: NeighbourAttentionSpec,
        packed: PackedWeights,
        neighbours: Neighbours,
        atoms: Tensor,
    ) -> None:
        dtype = neighbours.vectors.dtype
        if packed.layers.dtype != dtype:
            raise DataError(f"expected vectors of {packed.layers.dtype}, got {dtype}")
        self._library = kernels(spec, dtype)
        e = neighbours
        edges = (tensor.contiguous() for tensor in (e.pointer, e.types, e.pair, e.vectors))
        self._packed, self._edges, self._atoms = packed, Neighbours(*edges), atoms.contiguous()
        counts = neighbours.pointer.diff()[atoms]
        self._most = int(counts.max()) if len(atoms) else 0
        self._ld = _leading_dimension(self._most, neighbours.vectors.element_size())
        rows = self._library.kept_rows(address(packed.whole, self._library.kept_rows), self._most)
        # From the scratch pool: page-faulting this much memory costs as much as the computation.
        self._kept = empty((max(1, len(atoms)) * rows * self._ld,), neighbours.vectors)
        self._basis = spec.widths[-1]

    def moments(self) -> Tensor:
        """Return the moments, shape (n, M, 4)."""
        p, e = self._packed, self._edges
        out = e.vectors.new_empty(len(self._atoms), self._basis, 4)
        call(
            self._library.attention_moments,
            len(self._atoms),
            self._atoms,
            e.pointer,
            e.types,
            e.pair,
            e.vectors,
            p.deviation,
            p.embedding,
            p.first_bias,
            p.factors,
            p.whole,
            p.numbers,
            p.layers,
            self._most,
            self._ld,
            self._kept,
            out,
            torch.get_num_threads(),
        )
        return out

    def slopes(self, cotangent: Tensor, out: Tensor) -> None:
        """Write d<cotangent, moments>/d(vectors) to the rows of `out` of these atoms' edges."""
        p, e = self._packed, self._edges
        call(
            self._library.attention_slopes,
            len(self._atoms),
            self._atoms,
            e.pointer,
            e.types,
            p.deviation,
            p.whole,
            p.numbers,
            p.layers,
            self._most,
            self._ld,
            self._kept,
            cotangent.contiguous(),
            out,
            torch.get_num_threads(),
        )


def _leading_dimension(most: int, size: int) -> int:
    """Return the elements per row: an odd number of cache lines, which avoids cache conflicts."""
    line = CACHE_LINE // size
    lines = -(-max(1, -(-most // MOST_LANES) * MOST_LANES) // line)
    return (lines + 1 - lines % 2) * line


def moments_and_slopes(
    spec: NeighbourAttentionSpec,
    weights: Weights,
    neighbours: Neighbours,
    atoms: Tensor,
    cotangent: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the moments (n, M, 4) of some atoms, and d<cotangent, moments>/d(vectors), (E, 3)."""
    stored = KeptAtoms(spec, pack(spec, weights), neighbours, atoms)
    slopes = torch.zeros_like(neighbours.vectors)
    out = stored.moments()
    stored.slopes(cotangent, slopes)
    return out, slopes

"""The operation of attention among neighbours and the availability of its kernels."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from scitoolkit.ops.codegen import GeneratedC, Operation, Triton, refusing
from scitoolkit.ops.neighbour_attention import cpu, reference, segments, triton_source
from scitoolkit.ops.neighbour_attention.spec import (
    NeighbourAttentionSpec,
    Neighbours,
    Weights,
)

OPERATION = Operation(
    "neighbour_attention",
    "moments of environments refined by attention (DPA-1) and their gradients, for inference",
    reference.moments_and_slopes,
    0,
    "scitoolkit.ops.neighbour_attention.examples:examples",
)


def _refusing(run: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return an implementation whose derivatives are refused by name."""
    once = refusing(
        OPERATION.name,
        lambda vectors, cotangent, spec, weights, pointer, types, pair, atoms: run(
            spec, weights, Neighbours(pointer, types, pair, vectors), atoms, cotangent
        ),
    )

    def implementation(
        spec: NeighbourAttentionSpec,
        weights: Weights,
        neighbours: Neighbours,
        atoms: Tensor,
        cotangent: Tensor,
    ) -> tuple[Tensor, Tensor]:
        e = neighbours
        return once(e.vectors, cotangent, spec, weights, e.pointer, e.types, e.pair, atoms)

    return implementation


GeneratedC.serve(OPERATION.name, prepare=cpu.kernels, traceable=False, source=cpu.source)(
    _refusing(cpu.moments_and_slopes)
)
Triton.serve(OPERATION.name, prepare=triton_source.gpu_kernels, traceable=False)(
    _refusing(segments.moments_and_slopes)
)


def available(spec: NeighbourAttentionSpec, like: Tensor) -> bool:
    """Return whether kernels support the dtype and device of `like`; if not, log why once."""
    return OPERATION.has_kernel(spec, like)


def runs_by_segments(spec: NeighbourAttentionSpec, like: Tensor) -> bool:
    """Return whether `segments` has the kernels for a tensor; if not, log the reason once."""
    return OPERATION.backend(spec, like) == Triton.name


class KeptMoments:
    """Moments of chunks of atoms by the kernels, for inference.

    Args:
        spec: an operation for which `available` is true.
        weights: parameters, which are packed once.

    Example:
        >>> import torch
        >>> from scitoolkit.ops.codegen.examples import Numbers
        >>> example = next(OPERATION.iterate_examples(Numbers(torch.float64)))
        >>> [part.shape[-1] for part in example.call(OPERATION.reference, *example.tensors)]
        [4, 3]
    """

    def __init__(self, spec: NeighbourAttentionSpec, weights: Weights) -> None:
        self._spec, self._packed = spec, cpu.pack(spec, weights)

    def of(self, neighbours: Neighbours, atoms: Tensor) -> cpu.KeptAtoms:
        """Return the moments of atoms (n,) with the data for their derivatives."""
        return cpu.KeptAtoms(self._spec, self._packed, neighbours, atoms)

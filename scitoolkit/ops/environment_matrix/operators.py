"""The kernels of the environment-matrix operation as torch functions with second derivatives.

`moments` is differentiable in the embedding's weights, and `edge_gradients` in the cotangent and
in the weights, so a loss of energies and forces reaches all parameters. The two share one pass for
the weights' gradients: the backward of `edge_gradients`, which autograd always runs first because
its input depends on the moments, leaves its part as the pending cotangent of the `Environment` for
the backward of `moments`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import (
    REAL,
    GeneratedC,
    Operation,
    call,
    eager,
    empty,
    load_library,
    refusing,
)
from scitoolkit.ops.environment_matrix import cpu, reference
from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec


@functools.lru_cache(maxsize=64)
def kernels(spec: EnvironmentSpec, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels of a spec, compiled on first use.

    Raises:
        BackendError: a spec without kernels, no compiler, or one that fails.
    """
    reason = cpu.refusal(spec)
    if reason:
        raise BackendError(reason)
    return load_library(cpu.generate(spec, REAL[dtype]))


def available(spec: EnvironmentSpec, dtype: torch.dtype) -> bool:
    """Return whether the kernels can run here; log once why not."""
    return OPERATION.has_kernel(spec, dtype)


def flat_weights(layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return (networks, parameters): weight (networks, in, out), bias (networks, out) by layer."""
    return torch.cat([part.flatten(1) for pair in layers for part in pair], dim=1)


@dataclass(eq=False)
class Environment:
    """The edges of some atoms, with the activations that the kernels keep between calls.

    Attributes:
        atoms: (n,) int64, in the order of the rows of the moments.
        segments: (N * num_types + 1,) int64, types: (N,) int64, vectors: (E, 3); see `reference`.
        mean, deviation: (num_types, 4), of the dtype of `vectors`.
        training: keep the activations that the weights' gradients need.
        pending_cotangent: cotangent and tangent of the last `edge_gradients` whose backward ran.
    """

    spec: EnvironmentSpec
    atoms: Tensor
    segments: Tensor
    types: Tensor
    vectors: Tensor
    mean: Tensor
    deviation: Tensor
    training: bool
    starts: Tensor = field(init=False)
    act: Tensor = field(init=False)
    geo: Tensor = field(init=False)
    pending_cotangent: tuple[Tensor, Tensor] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Count blocks and acquire scratch memory."""
        lanes = cpu.LANES[REAL[self.vectors.dtype]]
        counts = self.segments.diff().view(-1, self.spec.num_types)[self.atoms]
        blocks = (counts + lanes - 1).div(lanes, rounding_mode="floor").sum(1)
        self.starts = torch.cat([blocks.new_zeros(1), blocks.cumsum(0)])
        number = int(self.starts[-1])
        width = cpu.activation_vectors(self.spec, training=self.training)
        # From the scratch pool: page-faulting this much memory costs as much as the computation.
        scratch = empty((max(number, 1) * (width + cpu.GEO) * lanes,), self.vectors)
        self.act, self.geo = scratch[: number * width * lanes], scratch[number * width * lanes :]
        self._width = width

    @property
    def _library(self) -> ctypes.CDLL:
        return kernels(self.spec, self.vectors.dtype)

    def _common(self) -> tuple[Any, ...]:
        return len(self.atoms), self.atoms, self.starts, self.segments, self.types

    def moments(self, weights: Tensor) -> Tensor:
        """Return (n, widths[-1], 4), without the absent neighbours."""
        out = self.vectors.new_empty(len(self.atoms), self.spec.widths[-1], 4)
        call(
            self._library.moments, *self._common(), self.vectors, self.mean, self.deviation,
            weights, self.act, self._width, self.geo, out, sum(self.spec.sel),
            int(self.training), torch.get_num_threads(),
        )  # fmt: skip
        return out

    def edge_gradients(self, cotangent: Tensor, out: Tensor) -> Tensor:
        """Write d<cotangent, moments>/d(vectors) into the rows of `out` of these atoms' edges."""
        call(
            self._library.edge_gradients, *self._common(), self.deviation, self.act, self._width,
            self.geo, cotangent, out, sum(self.spec.sel), torch.get_num_threads(),
        )  # fmt: skip
        return out

    def moments_jvp(self, tangent: Tensor) -> Tensor:
        """Return the Jacobian-vector product with a tangent (E, 3) of the vectors."""
        out = self.vectors.new_empty(len(self.atoms), self.spec.widths[-1], 4)
        call(
            self._library.moments_jvp, *self._common(), self.deviation, self.act, self._width,
            self.geo, tangent, out, sum(self.spec.sel), torch.get_num_threads(),
        )  # fmt: skip
        return out

    def weight_gradients(
        self, weights: Tensor, cotangent: Tensor, pending: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Return the gradient of <cotangent, T> + <pending[0], JVP of T with pending[1]>."""
        out = weights.new_empty(cpu.NUM_CHUNKS, *weights.shape)
        other, tangent = pending or (cotangent, None)
        pointer = ctypes.c_void_p(None if tangent is None else tangent.data_ptr())
        arguments = (
            *self._common(), self.deviation, weights, self.act, self._width, self.geo, cotangent,
            other,
        )  # fmt: skip
        _call_with_pointer(
            self._library.weight_gradients, arguments, pointer,
            (out, sum(self.spec.sel), torch.get_num_threads()),
        )  # fmt: skip
        return out.sum(0)


def _call_with_pointer(function: Any, before: tuple, pointer: Any, after: tuple) -> None:
    def converted(value: Any) -> Any:
        if isinstance(value, Tensor):
            return ctypes.c_void_p(value.data_ptr())
        return ctypes.c_int64(value)

    function(*map(converted, before), pointer, *map(converted, after))


def _save_moments(ctx, inputs, output) -> None:
    weights, ctx.environment = inputs
    ctx.save_for_backward(weights)


def _backward_of_moments(ctx, cotangent):
    (weights,) = ctx.saved_tensors
    environment = ctx.environment
    pending, environment.pending_cotangent = environment.pending_cotangent, None
    return _weight_gradients(weights, cotangent.contiguous(), environment, pending), None


def _save_edge_gradients(ctx, inputs, output) -> None:
    cotangent, ctx.environment = inputs
    ctx.save_for_backward(cotangent)


def _backward_of_edge_gradients(ctx, tangent):
    (cotangent,) = ctx.saved_tensors
    tangent = tangent.contiguous()
    ctx.environment.pending_cotangent = (cotangent.contiguous(), tangent)
    return _moments_jvp(tangent, ctx.environment), None


_weight_gradients = refusing(
    "environment_matrix with respect to its weights, twice",
    lambda weights, cotangent, environment, pending: environment.weight_gradients(
        weights, cotangent, pending
    ),
)
_moments_jvp = refusing(
    "environment_matrix with respect to its vectors, twice",
    lambda tangent, environment: environment.moments_jvp(tangent),
)
_moments = eager(
    lambda weights, environment: environment.moments(weights), _save_moments, _backward_of_moments
)
_edge_gradients = eager(
    lambda cotangent, environment: environment.edge_gradients(
        cotangent.contiguous(), torch.empty_like(environment.vectors)
    ),
    _save_edge_gradients,
    _backward_of_edge_gradients,
)


def moments(weights: Tensor, environment: Environment) -> Tensor:
    """Return the moments, differentiable in the weights (networks, parameters)."""
    return _moments(weights, environment)


def edge_gradients(cotangent: Tensor, environment: Environment) -> Tensor:
    """Return d<cotangent, moments>/d(vectors), (E, 3), after `moments` was called.

    Differentiable in the cotangent; its dependence on the weights enters through the backward of
    `moments`, so both must be part of one loss.
    """
    return _edge_gradients(cotangent, environment)


def _reference(weights: Tensor, environment: Environment) -> Tensor:
    e = environment
    graph = (e.vectors, e.segments, e.types, e.mean, e.deviation)
    return reference.present_moments(e.spec, *graph, weights)[e.atoms]


OPERATION = Operation(
    "environment_matrix",
    "moments of smooth environment matrices (DeepPot-SE)",
    _reference,
    1,
    "scitoolkit.ops.environment_matrix.examples:examples",
)
GeneratedC.serve(OPERATION.name, prepare=kernels, traceable=False)(moments)

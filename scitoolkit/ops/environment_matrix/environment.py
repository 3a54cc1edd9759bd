"""Calls of the environment-matrix kernels on the edges of some atoms."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import REAL, call, empty, load_library
from scitoolkit.ops.environment_matrix import cpu
from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec


@functools.lru_cache(maxsize=64)
def kernels(spec: EnvironmentSpec, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels of a spec, compiled on first use.

    Raises:
        BackendError: a spec without kernels, no compiler, or a compiler error.
    """
    reason = cpu.refusal(spec)
    if reason:
        raise BackendError(reason)
    return load_library(source(spec, dtype))


def source(spec: EnvironmentSpec, dtype: torch.dtype) -> str:
    """Return the C source of the kernels of a spec."""
    return cpu.generate(spec, REAL[dtype])


@dataclass(eq=False)
class Environment:
    """Edges of some atoms with the activations stored between calls of the kernels.

    Attributes:
        spec: the operation.
        atoms: (n,) int64, atoms in the order of the rows of the moments.
        segments: (N * num_types + 1,) int64, types: (N,) int64, vectors: (E, 3); see `reference`.
        mean, deviation: (num_types, 4), of the dtype of `vectors`.
        training: store the activations needed for gradients of the weights.
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
    pending_cotangent: tuple[Tensor, Tensor] | None = field(init=False, default=None)

    @functools.cached_property
    def _scratch(self) -> tuple[Tensor, Tensor, Tensor, int]:
        """First block of each atom, activations, geometry, activation vectors per block."""
        lanes = cpu.LANES[REAL[self.vectors.dtype]]
        counts = self.segments.diff().view(-1, self.spec.num_types)[self.atoms]
        blocks = (counts + lanes - 1).div(lanes, rounding_mode="floor").sum(1)
        starts = torch.cat([blocks.new_zeros(1), blocks.cumsum(0)])
        number = int(starts[-1])
        width = cpu.activation_vectors(self.spec, training=self.training)
        # From the scratch pool: page-faulting this much memory costs as much as the computation.
        scratch = empty((max(number, 1) * (width + cpu.GEO) * lanes,), self.vectors)
        act, geo = scratch.tensor_split((number * width * lanes,))
        return starts, act, geo, width

    @property
    def _library(self) -> ctypes.CDLL:
        return kernels(self.spec, self.vectors.dtype)

    def _common(self) -> tuple[Any, ...]:
        starts = self._scratch[0]
        return len(self.atoms), self.atoms, starts, self.segments, self.types

    def moments(self, weights: Tensor) -> Tensor:
        """Return the moments (n, widths[-1], 4) without the absent neighbours."""
        _, act, geo, width = self._scratch
        out = self.vectors.new_empty(len(self.atoms), self.spec.widths[-1], 4)
        call(
            self._library.moments,
            *self._common(),
            self.vectors,
            self.mean,
            self.deviation,
            weights,
            act,
            width,
            geo,
            out,
            sum(self.spec.sel),
            int(self.training),
            torch.get_num_threads(),
        )
        return out

    def edge_gradients(self, cotangent: Tensor, out: Tensor) -> Tensor:
        """Write d<cotangent, moments>/d(vectors) to the rows of `out` of these atoms' edges."""
        _, act, geo, width = self._scratch
        call(
            self._library.edge_gradients,
            *self._common(),
            self.deviation,
            act,
            width,
            geo,
            cotangent,
            out,
            sum(self.spec.sel),
            torch.get_num_threads(),
        )
        return out

    def moments_jvp(self, tangent: Tensor) -> Tensor:
        """Return the Jacobian-vector product with a tangent (E, 3) of the vectors."""
        _, act, geo, width = self._scratch
        out = self.vectors.new_empty(len(self.atoms), self.spec.widths[-1], 4)
        call(
            self._library.moments_jvp,
            *self._common(),
            self.deviation,
            act,
            width,
            geo,
            tangent,
            out,
            sum(self.spec.sel),
            torch.get_num_threads(),
        )
        return out

    def weight_gradients(
        self, weights: Tensor, cotangent: Tensor, pending: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Return the gradient of <cotangent, T> + <pending[0], JVP of T along pending[1]>."""
        _, act, geo, width = self._scratch
        out = weights.new_empty(cpu.NUM_CHUNKS, *weights.shape)
        other, tangent = pending or (cotangent, None)
        call(
            self._library.weight_gradients,
            *self._common(),
            self.deviation,
            weights,
            act,
            width,
            geo,
            cotangent,
            other,
            tangent,
            out,
            sum(self.spec.sel),
            torch.get_num_threads(),
        )
        return out.sum(0)

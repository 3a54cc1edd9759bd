"""The kernels of the environment-matrix operation, as torch functions with second derivatives.

`moments` is differentiable in the embedding's weights, and `edge_gradients` in the cotangent and
in the weights, so a loss of energies and forces reaches all parameters. The two share one pass for
the weights' gradients: the backward of `edge_gradients`, which autograd always runs first because
its input depends on the moments, leaves its part with the `Environment` for that of `moments`.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError
from scitoolkit.core.log import get_logger
from scitoolkit.ops.codegen import call, load_library
from scitoolkit.ops.environment_matrix import cpu
from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec

REAL = {torch.float32: "float", torch.float64: "double"}
log = get_logger(__name__)
ROOMS = 2  # kept for the next call


@functools.lru_cache(maxsize=64)
def kernels(spec: EnvironmentSpec, dtype: torch.dtype) -> ctypes.CDLL:
    """Return the loaded kernels of a spec, compiled on first use.

    Raises:
        BackendError: no compiler, or one that fails.
    """
    return load_library(cpu.generate(spec, REAL[dtype]))


@functools.lru_cache(maxsize=64)
def available(spec: EnvironmentSpec, dtype: torch.dtype) -> bool:
    """Return whether the kernels can run here; says once why not."""
    if not cpu.supported(spec) or dtype not in REAL:
        return False
    try:
        kernels(spec, dtype)
    except BackendError as error:
        log.warning("%s; the slower torch reference is used", error)
        return False
    return True


def flat_weights(layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return (networks, parameters): weight (networks, in, out), bias (networks, out) by layer."""
    return torch.cat([part.flatten(1) for pair in layers for part in pair], dim=1)


_rooms: list[Tensor] = []


def _take(size: int, dtype: torch.dtype) -> Tensor:
    for place, room in enumerate(_rooms):
        if room.dtype == dtype and size <= room.numel() <= 2 * size:
            return _rooms.pop(place)
    return torch.empty(size + size // 8, dtype=dtype)


def _give_back(room: Tensor) -> None:
    _rooms.append(room)
    del _rooms[:-ROOMS]


@dataclass(eq=False)
class Environment:
    """Some atoms with their edges, and what the kernels keep of them between calls.

    Attributes:
        atoms: (n,) int64, in the order of the rows of the moments.
        segments: (N * num_types + 1,) int64, types: (N,) int64, vectors: (E, 3); see `reference`.
        mean, deviation: (num_types, 4), of the dtype of `vectors`.
        training: keep what the weights' gradients need.
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
    held: tuple[Tensor, Tensor] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Count blocks and make room."""
        lanes = cpu.LANES[REAL[self.vectors.dtype]]
        counts = self.segments.diff().view(-1, self.spec.num_types)[self.atoms]
        blocks = (counts + lanes - 1).div(lanes, rounding_mode="floor").sum(1)
        self.starts = torch.cat([blocks.new_zeros(1), blocks.cumsum(0)])
        number = int(self.starts[-1])
        width = cpu.activation_vectors(self.spec, training=self.training)
        # Rooms are used again: fresh pages of this size would cost as much as the arithmetic.
        room = _take(max(number, 1) * (width + cpu.GEO) * lanes, self.vectors.dtype)
        weakref.finalize(self, _give_back, room)
        self.act, self.geo = room[: number * width * lanes], room[number * width * lanes :]
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

    def moved_moments(self, moves: Tensor) -> Tensor:
        """Return the change of the moments when the vectors change by `moves` (E, 3)."""
        out = self.vectors.new_empty(len(self.atoms), self.spec.widths[-1], 4)
        call(
            self._library.moved_moments, *self._common(), self.deviation, self.act, self._width,
            self.geo, moves, out, sum(self.spec.sel), torch.get_num_threads(),
        )  # fmt: skip
        return out

    def weight_gradients(
        self, weights: Tensor, cotangent: Tensor, held: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Return the gradient of <cotangent, T> + <held[0], change of T by held[1]>."""
        out = weights.new_empty(cpu.NUM_CHUNKS, *weights.shape)
        other, moves = held if held is not None else (cotangent, ctypes.c_void_p(None))
        number = ctypes.c_void_p(moves.data_ptr()) if isinstance(moves, Tensor) else moves
        arguments = (
            *self._common(), self.deviation, weights, self.act, self._width, self.geo, cotangent,
            other,
        )  # fmt: skip
        _call_with_pointer(
            self._library.weight_gradients, arguments, number,
            (out, sum(self.spec.sel), torch.get_num_threads()),
        )  # fmt: skip
        return out.sum(0)


def _call_with_pointer(function: Any, before: tuple, pointer: Any, after: tuple) -> None:
    def converted(value: Any) -> Any:
        if isinstance(value, Tensor):
            return ctypes.c_void_p(value.data_ptr())
        return ctypes.c_int64(value)

    function(*map(converted, before), pointer, *map(converted, after))


class _Moments(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weights, environment):
        ctx.save_for_backward(weights)
        ctx.environment = environment
        return environment.moments(weights)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, cotangent):
        (weights,) = ctx.saved_tensors
        environment = ctx.environment
        held, environment.held = environment.held, None
        return environment.weight_gradients(weights, cotangent.contiguous(), held), None


class _EdgeGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cotangent, environment):
        ctx.save_for_backward(cotangent)
        ctx.environment = environment
        return environment.edge_gradients(
            cotangent.contiguous(), torch.empty_like(environment.vectors)
        )

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, moves):
        (cotangent,) = ctx.saved_tensors
        moves = moves.contiguous()
        ctx.environment.held = (cotangent.contiguous(), moves)
        return ctx.environment.moved_moments(moves), None


def moments(weights: Tensor, environment: Environment) -> Tensor:
    """Return the moments, differentiable in the weights (networks, parameters)."""
    return _Moments.apply(weights, environment)


def edge_gradients(cotangent: Tensor, environment: Environment) -> Tensor:
    """Return d<cotangent, moments>/d(vectors), (E, 3), after `moments` was called.

    Differentiable in the cotangent; its dependence on the weights enters through the backward of
    `moments`, so both must be part of one loss.
    """
    return _EdgeGradients.apply(cotangent, environment)

"""Launches of the Triton kernels of the environment matrix; see `triton_source`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import load_triton, on_device, warn_once
from scitoolkit.ops.environment_matrix import reference, triton_source
from scitoolkit.ops.environment_matrix.environment import Environment
from scitoolkit.ops.environment_matrix.reference import Layer
from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec
from scitoolkit.ops.environment_matrix.table import EmbeddingTable, tabulate
from scitoolkit.ops.environment_matrix.triton_source import Padding

WARPS = 8


@functools.lru_cache(maxsize=64)
def gpu_kernels(spec: EnvironmentSpec, dtype: torch.dtype) -> ModuleType:
    """Return the module of the kernels of a spec for both precisions.

    Raises:
        BackendError: a spec without kernels.
    """
    reason = triton_source.refusal(spec)
    if reason:
        raise BackendError(reason)
    return load_triton(triton_source.generate(spec))


@functools.lru_cache(maxsize=64)
def _places(widths: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the function at each place of the last layer, and the packing of a network.

    The last two are, for each packed parameter, its index in the flat parameters, and the reverse.
    """
    padding = Padding.of(widths)
    packed, count = torch.tensor(padding.parameters), padding.num_parameters
    # Padding points to an index behind the last parameter, whose value is zero: it is read by
    # `packed_weights` and dropped from gradients.
    flat = torch.empty(count + 1, dtype=torch.int64)
    flat[packed] = torch.arange(len(packed))
    functions = torch.tensor(padding.functions[-1], dtype=torch.int32)
    return functions.to(device), packed.to(device), flat[:count].to(device)


def packed_weights(spec: EnvironmentSpec, weights: Tensor) -> Tensor:
    """Return flat parameters (networks, parameters) in the padded layout of the kernels."""
    packed = _places(spec.widths, weights.device)[1]
    return torch.cat([weights, weights.new_zeros(len(weights), 1)], dim=1)[:, packed]


def launch(
    name: str, spec: EnvironmentSpec, grid: tuple[int, ...], like: Tensor, *arguments: Any, **sizes
) -> None:
    """Launch a kernel of a spec for the dtype of `like`; an empty grid launches nothing."""
    if all(grid):
        kernel = getattr(gpu_kernels(spec, like.dtype), name)
        with on_device(like):
            kernel[grid](*arguments, **sizes, num_warps=WARPS, num_stages=1)


class GpuEnvironment(Environment):
    """Edges of some atoms on a GPU; the kernels store no activations."""

    @classmethod
    def of(cls, e: Environment) -> GpuEnvironment:
        """Return an environment for the kernels of GPUs, with contiguous tensors."""
        graph = (e.atoms, e.segments, e.types, e.vectors, e.mean, e.deviation)
        atoms, segments, types, vectors, mean, deviation = (part.contiguous() for part in graph)
        return cls(e.spec, atoms, segments, types, vectors, mean, deviation, e.training)

    def _graph(self, weights: Tensor) -> tuple[Tensor, ...]:
        places = _places(self.spec.widths, self.vectors.device)[0]
        graph = (self.atoms, self.segments, self.types, places, self.vectors)
        return *graph, self.mean, self.deviation, packed_weights(self.spec, weights)

    def _launch(self, name: str, *arguments: Any) -> None:
        launch(name, self.spec, (len(self.atoms),), self.vectors, *arguments)

    def moments(self, weights: Tensor) -> Tensor:
        """Return the moments (n, widths[-1], 4) without the absent neighbours."""
        self._filled = self._graph(weights)
        out = self.vectors.new_empty(len(self.atoms), self.spec.widths[-1], 4)
        self._launch("moments", *self._filled, out)
        return out

    def edge_gradients(self, cotangent: Tensor, out: Tensor) -> Tensor:
        """Write d<cotangent, moments>/d(vectors) to the rows of `out` of these atoms' edges."""
        self._launch("edge_gradients", *self._filled, cotangent, out)
        return out

    def moments_jvp(self, tangent: Tensor) -> Tensor:
        """Return the Jacobian-vector product with a tangent (E, 3) of the vectors."""
        out = self.vectors.new_empty(len(self.atoms), self.spec.widths[-1], 4)
        self._launch("moments_jvp", *self._filled, tangent, out)
        return out

    def weight_gradients(
        self, weights: Tensor, cotangent: Tensor, pending: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Return the gradient of <cotangent, T> + <pending[0], JVP of T along pending[1]>."""
        if not _gradients_fit(self.spec, self.vectors):
            return self._weight_gradients_by_torch(weights, cotangent, pending)
        # A fixed number of programs takes the atoms in turn and each has its sum: the order of
        # addition, hence the last bit, does not depend on the GPU.
        count, programs = len(self.atoms), min(len(self.atoms), triton_source.PROGRAMS)
        graph = self._filled
        parts = weights.new_empty(programs, len(weights), graph[-1].shape[1])
        name = "weight_gradients" if pending is None else "force_weight_gradients"
        arguments = (count, *graph, cotangent, *(pending or ()), parts)
        launch(name, self.spec, (programs, len(weights)), self.vectors, *arguments)
        return parts.sum(0)[:, _places(self.spec.widths, weights.device)[2]]

    def _weight_gradients_by_torch(
        self, weights: Tensor, cotangent: Tensor, pending: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Return the same, for GPUs whose shared memory is too small for the kernels."""
        with torch.enable_grad():
            weights, vectors = weights.detach().requires_grad_(), self.vectors.detach()
            graph = (vectors.requires_grad_(), self.segments, self.types, self.mean, self.deviation)
            out = reference.present_moments(self.spec, *graph, weights)[self.atoms]
            total = (out * cotangent).sum()
            if pending is not None:
                # <g, J t> = <J^T g, t>: the derivative along t is taken through the gradient, which
                # torch can differentiate once more.
                (slopes,) = torch.autograd.grad(out, vectors, pending[0], create_graph=True)
                total = total + (slopes * pending[1]).sum()
            return torch.autograd.grad(total, weights, materialize_grads=True)[0]


def _gradients_fit(spec: EnvironmentSpec, like: Tensor) -> bool:
    """Return whether the kernels of weights' gradients fit into a GPU's shared memory."""
    return not like.is_cuda or _fit(spec, like.device)


@functools.lru_cache(maxsize=64)
def _fit(spec: EnvironmentSpec, device: torch.device) -> bool:
    properties: Any = torch.cuda.get_device_properties(device)
    room = getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block)
    need = triton_source.shared_bytes(spec)
    if room < need:
        reason = f"gradients of weights need {need} bytes of shared memory, not {room}"
        warn_once("environment_matrix", reason)
    return room >= need


class GpuTable(EmbeddingTable):
    """A table whose kernels run on a GPU."""

    def _launch(
        self, name: str, graph: tuple[Tensor, Tensor, Tensor, Tensor], *others: Tensor
    ) -> None:
        atoms, segments, types, vectors = (part.contiguous() for part in graph)
        groups, _, group = self.values.shape[2:]
        launch(
            name,
            self.spec,
            (len(atoms),),
            vectors,
            *(atoms, segments, types, _places(self.spec.widths, vectors.device)[0], vectors),
            *(self.mean, self.deviation, packed_weights(self.spec, self.weights)),
            *(self.values, self.range, self.values.shape[1], *others),
            GROUPS=groups,
            GROUP=group,
        )

    def moments(self, atoms: Tensor, segments: Tensor, types: Tensor, vectors: Tensor) -> Tensor:
        """Return the moments (n, widths[-1], 4) of some atoms without absent neighbours."""
        out = vectors.new_empty(len(atoms), self.spec.widths[-1], 4)
        self._launch("table_moments", (atoms, segments, types, vectors), out)
        return out

    def edge_gradients(
        self,
        atoms: Tensor,
        segments: Tensor,
        types: Tensor,
        vectors: Tensor,
        cotangent: Tensor,
        out: Tensor,
    ) -> None:
        """Write d<cotangent, moments>/d(vectors) to the rows of `out` of these atoms' edges."""
        graph = (atoms, segments, types, vectors)
        self._launch("table_edge_gradients", graph, cotangent.contiguous(), out)


def table_of(
    spec: EnvironmentSpec,
    networks: Sequence[Sequence[Layer]],
    weights: Tensor,
    mean: Tensor,
    deviation: Tensor,
    **options: float,
) -> EmbeddingTable:
    """Return a table for the device of the weights; arguments as for `tabulate`."""
    made = tabulate(spec, networks, weights, mean, deviation, **options)
    return GpuTable(**vars(made)) if weights.is_cuda else made

"""The environment-matrix operation and the availability of its kernels."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.ops.codegen import GeneratedC, Operation, Triton
from scitoolkit.ops.environment_matrix import operators, reference
from scitoolkit.ops.environment_matrix.environment import Environment, kernels, source
from scitoolkit.ops.environment_matrix.gpu_environment import GpuEnvironment, gpu_kernels
from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec


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
GeneratedC.serve(OPERATION.name, prepare=kernels, source=source)(operators.moments)
Triton.serve(OPERATION.name, prepare=gpu_kernels)(operators.gpu_moments)


def environment_kind(spec: EnvironmentSpec, like: Tensor) -> type[Environment]:
    """Return the class of environments whose kernels serve a tensor's dtype and device.

    Args:
        spec: the operation, for which `available` is true.
        like: tensor with the dtype and device.
    """
    return GpuEnvironment if OPERATION.backend(spec, like) == Triton.name else Environment


def available(spec: EnvironmentSpec, like: Tensor) -> bool:
    """Return whether the kernels can run for tensors like `like`; if not, log the reason once."""
    return OPERATION.has_kernel(spec, like)

"""The environment-matrix operation and the availability of its kernels."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.ops.codegen import GeneratedC, Operation
from scitoolkit.ops.environment_matrix import operators, reference
from scitoolkit.ops.environment_matrix.environment import Environment, kernels, source
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


def available(spec: EnvironmentSpec, like: Tensor) -> bool:
    """Return whether kernels support the dtype and device of `like`; if not, log why once."""
    return OPERATION.has_kernel(spec, like)

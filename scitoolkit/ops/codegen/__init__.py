"""Generated kernels: source, compiler cache, registered operators, backends and dispatch."""

from scitoolkit.ops.codegen.backends import (
    GeneratedC,
    Implementation,
    KernelBackend,
    Reference,
    Triton,
    kernel_backends,
)
from scitoolkit.ops.codegen.buffers import empty
from scitoolkit.ops.codegen.cache import cache_directory
from scitoolkit.ops.codegen.compile import find_compiler, load_generated, load_library
from scitoolkit.ops.codegen.dispatch import Operation, check_tensor, operations, warn_once
from scitoolkit.ops.codegen.dtypes import REAL, TRITON_REAL
from scitoolkit.ops.codegen.gpu import check_triton, load_triton, on_device, triton_version
from scitoolkit.ops.codegen.operator import (
    call,
    differentiable,
    eager,
    functional,
    is_eager,
    is_recorded,
    is_traced_transform,
    is_transformed,
    operator,
    refusing,
)

__all__ = [
    "REAL",
    "TRITON_REAL",
    "GeneratedC",
    "Implementation",
    "KernelBackend",
    "Operation",
    "Reference",
    "Triton",
    "cache_directory",
    "call",
    "check_tensor",
    "check_triton",
    "differentiable",
    "eager",
    "empty",
    "find_compiler",
    "functional",
    "is_eager",
    "is_recorded",
    "is_traced_transform",
    "is_transformed",
    "kernel_backends",
    "load_generated",
    "load_library",
    "load_triton",
    "on_device",
    "operations",
    "operator",
    "refusing",
    "triton_version",
    "warn_once",
]

"""The one way from generated source to a registered torch operator: cache, load, register."""

from scitoolkit.ops.codegen.buffers import empty
from scitoolkit.ops.codegen.cache import cache_directory
from scitoolkit.ops.codegen.choose import (
    BACKENDS,
    REAL,
    check_tensor,
    choose_backend,
    gpu_kernels_of,
    kernels_of,
    use_kernel,
)
from scitoolkit.ops.codegen.compile import (
    find_compiler,
    load_generated,
    load_library,
)
from scitoolkit.ops.codegen.gpu import check_triton, load_triton, on_device, triton_version
from scitoolkit.ops.codegen.operator import (
    call,
    eager,
    functional,
    is_eager,
    is_recorded,
    is_traced_transform,
    is_transformed,
    operator,
)

__all__ = [
    "BACKENDS",
    "REAL",
    "cache_directory",
    "call",
    "check_tensor",
    "check_triton",
    "choose_backend",
    "eager",
    "empty",
    "find_compiler",
    "functional",
    "gpu_kernels_of",
    "is_eager",
    "is_recorded",
    "is_traced_transform",
    "is_transformed",
    "kernels_of",
    "load_generated",
    "load_library",
    "load_triton",
    "on_device",
    "operator",
    "triton_version",
    "use_kernel",
]

"""The one way from generated C to a registered torch operator: compile, cache, load, register."""

from scitoolkit.ops.codegen.buffers import empty
from scitoolkit.ops.codegen.choose import BACKENDS, REAL, check_tensor, kernels_of, use_kernel
from scitoolkit.ops.codegen.compile import (
    cache_directory,
    compiled_path,
    find_compiler,
    load_generated,
    load_library,
)
from scitoolkit.ops.codegen.operator import call, eager, is_eager, operator

__all__ = [
    "BACKENDS",
    "REAL",
    "cache_directory",
    "call",
    "check_tensor",
    "compiled_path",
    "eager",
    "empty",
    "find_compiler",
    "is_eager",
    "kernels_of",
    "load_generated",
    "load_library",
    "operator",
    "use_kernel",
]

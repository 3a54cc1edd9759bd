"""The one way from generated C to a registered torch operator: compile, cache, load, register."""

from scitoolkit.ops.codegen.compile import (
    cache_directory,
    compiled_path,
    find_compiler,
    load_library,
)
from scitoolkit.ops.codegen.operator import call, operator

__all__ = ["cache_directory", "call", "compiled_path", "find_compiler", "load_library", "operator"]

"""Generated C source of an operation, for printing."""

from __future__ import annotations

import torch

from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.ops.codegen.backends import GeneratedC
from scitoolkit.ops.codegen.examples import Numbers
from scitoolkit.ops.codegen.kinds import operations


def c_source(name: str, dtype: torch.dtype, spec: str = "") -> str:
    """Return the generated C source of an operation's kernels.

    Args:
        name: name of the operation, as in `scitoolkit ls operation`.
        dtype: float32 or float64.
        spec: text of the spec; by default the spec of the operation's first example.

    Raises:
        ConfigError: an unknown operation, or a text that is not a spec of it.
        BackendError: an operation without generated C.

    Example:
        >>> c_source("spmm", torch.float32, "16").splitlines()[0]
        '/* sparse product and sampled product of 16 columns, float */'
    """
    operation = operations.get(name)
    implementation = GeneratedC.implementations.get(name)
    if implementation is None or implementation.source is None:
        raise BackendError(f"operation {name} has no generated C")
    example = next(operation.iterate_examples(Numbers(dtype))).spec
    if not spec:
        return implementation.source(example, dtype)
    if not isinstance(example, str):
        raise ConfigError(f"operation {name} has no specs in text form", fix="leave out the spec")
    try:
        return implementation.source(spec, dtype)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, MemoryError):
        raise ConfigError(f"spec {spec!r} of {name}", allowed=f"text such as {example!r}") from None

"""Table of the derivatives, devices, compilers and transforms that each operation supports."""

from __future__ import annotations

from scitoolkit.ops.codegen.backends import Implementation, KernelBackend, Reference
from scitoolkit.ops.codegen.dispatch import Operation
from scitoolkit.ops.codegen.kinds import kernel_backends, operations

HEADER = ("operation", "computes", "derivatives", "kernels", "torch.compile, export", "torch.func")


def capability_table() -> str:
    """Return a Markdown table with one row for each registered operation.

    Example:
        >>> print(capability_table().splitlines()[0])
        | operation | computes | derivatives | kernels | torch.compile, export | torch.func |
    """
    rows = [HEADER, ("---",) * len(HEADER)]
    rows += [_row(operations.get(name)) for name in operations]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(operation: Operation) -> tuple[str, ...]:
    backends = map(kernel_backends.get, kernel_backends)
    serving = [backend for backend in backends if _serves(backend, operation)]
    implementations = [backend.implementations[operation.name] for backend in serving]
    times = "any" if operation.derivatives is None else str(operation.derivatives)
    devices = [f"{backend.name} ({', '.join(backend.devices)})" for backend in serving]
    return (
        f"`{operation.name}`",
        operation.summary,
        times,
        ", ".join(devices),
        _kernel_or_reference(implementations, "traceable"),
        _kernel_or_reference(implementations, "transforms"),
    )


def _serves(backend: type[KernelBackend], operation: Operation) -> bool:
    return backend is not Reference and backend.serves(operation.name)


def _kernel_or_reference(implementations: list[Implementation], capability: str) -> str:
    able = [getattr(implementation, capability) for implementation in implementations]
    return "kernel" if all(able) else "reference" if not any(able) else "kernel on the CPU"

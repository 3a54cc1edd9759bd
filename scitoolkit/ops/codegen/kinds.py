"""Plug-in kinds of operations and kernel backends; importing this module does not import torch."""

from __future__ import annotations

from typing import Any

from scitoolkit.core.plugins import Kind

operations: Kind[Any] = Kind(
    "operation", "a numerical operation with kernels and a reference", imports_torch=True
)
"""Members are `Operation`s."""

kernel_backends: Kind[Any] = Kind(
    "kernel backend",
    "runs the numerical operations",
    contract="scitoolkit.testing:KernelContract",
    imports_torch=True,
)
"""Members are subclasses of `KernelBackend`."""

"""Kernel backends: plug-ins that implement operations for some devices and dtypes.

A backend is a class with its capabilities as class attributes. `serve` registers functions as its
implementations of operations; all implementations of an operation have the signature of its
reference. A new backend is one file with such a class, named in the entry-point group
`scitoolkit.kernel_backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import prebuilt
from scitoolkit.ops.codegen.compile import find_compiler
from scitoolkit.ops.codegen.dtypes import REAL
from scitoolkit.ops.codegen.gpu import check_triton, is_interpreted, triton_version

Prepare = Callable[..., object]
# Implementations by the names of backend and operation, the constants that torch.compile can trace.
FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {}


@dataclass(frozen=True)
class Implementation:
    """A backend's implementation of one operation.

    Attributes:
        run: function with the arguments of the operation's reference.
        prepare: `prepare(spec, dtype, *options)` compiles or loads the kernels and raises
            BackendError if that is impossible. None if there is nothing to prepare.
        traceable: whether torch.compile and torch.export can trace `run`, which then consists of
            registered operators.
        transforms: whether `run` supports torch.func (vmap, forward mode).
        source: `source(spec, dtype)` returns the generated source for printing, or None.
    """

    run: Callable[..., Any]
    prepare: Prepare | None = None
    traceable: bool = True
    transforms: bool = False
    source: Callable[..., str] | None = None


class KernelBackend:
    """Base class of kernel backends: capabilities as class attributes, never instantiated.

    Attributes:
        name: value of `backend=` that selects it.
        devices: types of devices that it supports; empty: all.
        dtypes: dtypes of tensors that it supports; empty: all.
        priority: `backend="auto"` selects the highest priority that can run.

    Example:
        >>> class Example(KernelBackend):
        ...     name, devices, priority = "example", ("cpu",), 50
        >>> @Example.serve("radial_basis")
        ... def radial_basis(distances, spec): ...
        >>> Example.serves("radial_basis"), Example.serves("spmm")
        (True, False)
    """

    name: ClassVar[str] = ""
    devices: ClassVar[tuple[str, ...]] = ()
    dtypes: ClassVar[tuple[torch.dtype, ...]] = tuple(REAL)
    priority: ClassVar[int] = 0
    implementations: ClassVar[dict[str, Implementation]]

    def __init_subclass__(cls) -> None:
        """Create the table of implementations of a backend."""
        cls.implementations = {}

    @classmethod
    def serve(
        cls,
        operation: str,
        *,
        prepare: Prepare | None = None,
        traceable: bool = True,
        transforms: bool = False,
        source: Callable[..., str] | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that registers a function as the implementation of an operation.

        Args:
            operation: name of the operation, as in `scitoolkit ls operation`.
            prepare: see `Implementation`.
            traceable: see `Implementation`.
            transforms: see `Implementation`.
            source: see `Implementation`.
        """

        def add(run: Callable[..., Any]) -> Callable[..., Any]:
            cls.implementations[operation] = Implementation(
                run, prepare, traceable, transforms, source
            )
            FUNCTIONS[cls.name, operation] = run
            return run

        return add

    @classmethod
    def serves(cls, operation: str) -> bool:
        """Return whether the backend has an implementation of an operation."""
        return operation in cls.implementations

    @classmethod
    def unavailable(cls) -> str:
        """Return why the backend cannot be used on this machine, empty if it can."""
        return ""

    @classmethod
    def refuses_device(cls, device: str) -> str:
        """Return why tensors on a type of device are not supported, empty if they are."""
        if cls.devices and device not in cls.devices:
            return f"there is no kernel for device {device}"
        return ""

    @classmethod
    def refusal(
        cls, operation: str, spec: Hashable, dtype: torch.dtype, device: str, *options: Hashable
    ) -> str:
        """Prepare the kernels of an operation; return why it cannot run, empty if it can.

        Args:
            operation: name of the operation.
            spec: argument of the kernels' generator.
            dtype: dtype of the tensors.
            device: type of the tensors' device.
            options: further arguments of the implementation's `prepare`.
        """
        if not cls.serves(operation):
            return f"there is no kernel of {operation} for backend {cls.name}"
        if cls.dtypes and dtype not in cls.dtypes:
            return f"there is no kernel for {dtype}"
        reason = cls.refuses_device(device)
        prepare = cls.implementations[operation].prepare
        if reason or prepare is None:
            return reason
        try:
            prepare(spec, dtype, *options)
        except BackendError as error:
            return str(error)
        return ""


class GeneratedC(KernelBackend):
    """Generated C, compiled by the system compiler on first use or prebuilt in the wheel."""

    name = "cpu"
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    priority = 10

    @classmethod
    def unavailable(cls) -> str:
        """Return why kernels can neither be compiled nor loaded prebuilt, empty if they can."""
        try:
            find_compiler()
        except BackendError as error:
            try:
                return "" if prebuilt.num_usable() else str(error)
            except BackendError as reason:  # of the archive: other backends need no kernels
                return f"{error}; {reason}"
        return ""


class Triton(KernelBackend):
    """Generated Triton for GPUs; with TRITON_INTERPRET=1 on the CPU, for tests."""

    name = "triton"
    devices: ClassVar[tuple[str, ...]] = ("cuda",)
    priority = 10

    @classmethod
    def unavailable(cls) -> str:
        """Return why no Triton kernel can run on this machine."""
        if not triton_version():
            return "triton is not installed"
        if is_interpreted() or torch.cuda.is_available():
            return ""
        return "no GPU is visible"

    @classmethod
    def refuses_device(cls, device: str) -> str:
        """Return why Triton cannot run on a type of device; under its interpreter the CPU can."""
        try:
            check_triton(device)
        except BackendError as error:
            return str(error)
        return ""


class Reference(KernelBackend):
    """Plain torch: any device and dtype, differentiable to any order, slow."""

    name = "reference"
    dtypes: ClassVar[tuple[torch.dtype, ...]] = ()

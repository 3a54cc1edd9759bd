"""Backend selection: the kernel backend of highest priority that can run, else the reference."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.suggest import nearest_name
from scitoolkit.ops.codegen.backends import FUNCTIONS, KernelBackend, Reference
from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.codegen.kinds import kernel_backends
from scitoolkit.ops.codegen.registration import is_eager, is_traced_transform, is_transformed

AUTO = "auto"
EAGER, TRACED, TRANSFORMED = (
    "eager",
    "torch.compile, torch.export or a tensor subclass",
    "torch.func",
)


@dataclass(frozen=True, eq=False)
class Operation:
    """A numerical operation: a reference and any number of backends with the same signature.

    Attributes:
        name: name of the operation and of its registered operators, `scitoolkit::<name>`.
        summary: one line for the table of operations.
        reference: readable implementation in torch, differentiable to any order.
        derivatives: how often the kernels can be differentiated; None: any number of times.
        examples: `module:function`; the function yields `Example`s for the contract suite.
    """

    name: str
    summary: str
    reference: Callable[..., Any]
    derivatives: int | None = 2
    examples: str = ""

    def __post_init__(self) -> None:
        """Register the reference as a backend's implementation."""
        Reference.serve(self.name, transforms=True)(self.reference)

    def choose(
        self, spec: Hashable, like: Tensor, backend: str = AUTO, *options: Hashable
    ) -> Callable[..., Any]:
        """Return the implementation for a tensor, compiling its kernels if needed.

        Args:
            spec: argument of the kernels' generator; text if torch.compile shall trace the call.
            like: tensor with the dtype and device to support.
            backend: auto, or the name of a kernel backend.
            options: further arguments of the implementations' `prepare`.

        Raises:
            ConfigError: an unknown backend, or one without this operation.
            BackendError: the named backend cannot run.
        """
        device, caller = like.device.type, _caller(like)
        name = _name(self.name, spec, like.dtype, device, backend, caller, *options)
        return FUNCTIONS[name, self.name]

    def backend(self, spec: Hashable, like: Tensor, backend: str = AUTO, *options: Hashable) -> str:
        """Return the name of the backend that `choose` selects for the same arguments."""
        device, caller = like.device.type, _caller(like)
        return decide(self.name, spec, like.dtype, device, backend, caller, *options).name

    def iterate_examples(self, numbers: Numbers) -> Iterator[Example]:
        """Yield small inputs for the contract suite."""
        module, _, function = self.examples.partition(":")
        yield from getattr(importlib.import_module(module), function)(numbers)

    def has_kernel(self, spec: Hashable, like: Tensor) -> bool:
        """Return whether a kernel can run in eager mode; if not, log the reason once.

        Args:
            spec: argument of the kernels' generator.
            like: tensor with the dtype and device to support.
        """
        return decide(self.name, spec, like.dtype, like.device.type) is not Reference


def _caller(like: Tensor) -> str:
    """Return whether the call comes from eager torch, a tracer or a torch.func transform."""
    if is_transformed() or is_traced_transform():
        return TRANSFORMED
    return EAGER if is_eager(like) else TRACED


def _name(operation: str, *arguments: Hashable) -> str:
    return decide(operation, *arguments).name


# While torch.compile traces, a decision compiles C and reads caches, which it must not trace: the
# name is a constant of the graph, and the function is looked up by it. This is the mark that
# `torch.compiler.assume_constant_result` sets, without its import of the compiler (140 MiB).
vars(_name)["_dynamo_marked_constant"] = True


@functools.lru_cache(maxsize=4096)
def decide(
    operation: str,
    spec: Hashable,
    dtype: torch.dtype,
    device: str,
    backend: str = AUTO,
    caller: str = EAGER,
    *options: Hashable,
) -> type[KernelBackend]:
    """Return the backend for an operation; arguments and errors as for `Operation.choose`."""
    if backend == Reference.name:
        return Reference
    reasons = []
    for candidate in _candidates(operation, device, backend):
        reason = candidate.refusal(operation, spec, dtype, device, *options)
        # Asked last: whether a kernel exists is the more useful reason, where both hold.
        reason = reason or _refuses_caller(candidate, operation, caller)
        if not reason:
            return candidate
        reasons.append(reason)
    # The first refusal is that of the best backend, which the user would want to have mended.
    reason = reasons[0] if reasons else f"there is no kernel for device {device}"
    if backend != AUTO:
        raise BackendError(reason, where=operation, fix="backend='reference'")
    warn_once(operation, reason)
    return Reference


def _refuses_caller(backend: type[KernelBackend], operation: str, caller: str) -> str:
    kernels = backend.implementations[operation]
    fits = {EAGER: True, TRACED: kernels.traceable, TRANSFORMED: kernels.transforms}[caller]
    return "" if fits else f"the kernels of backend {backend.name} do not run under {caller}"


def _candidates(operation: str, device: str, backend: str) -> list[type[KernelBackend]]:
    """Return the candidate backends in order of preference."""
    if backend != AUTO:
        return [_named(operation, backend)]
    serving = [
        candidate
        for candidate in map(_imported, kernel_backends)
        if candidate is not None
        and candidate.serves(operation)
        and candidate is not Reference
        and device in (candidate.devices or (device,))
    ]
    return sorted(serving, key=lambda candidate: -candidate.priority)


def _imported(name: str) -> type[KernelBackend] | None:
    """Return a backend, or None with a warning if it cannot be imported."""
    try:
        return kernel_backends.get(name)
    except BackendError as error:
        warn_once(f"kernel backend {name}", str(error))
        return None


def _named(operation: str, backend: str) -> type[KernelBackend]:
    serving = [
        n for n in kernel_backends if (b := _imported(n)) is not None and b.serves(operation)
    ]
    if backend not in serving:
        allowed = [AUTO, *serving]
        raise ConfigError(
            f"backend={backend!r}",
            where=operation,
            allowed=", ".join(allowed),
            fix=nearest_name(backend, allowed) or "",
        )
    return kernel_backends.get(backend)


@functools.cache
def warn_once(operation: str, reason: str, instead: str = "the slow reference runs") -> None:
    """Log once per process why the kernels of an operation cannot run and what runs instead."""
    get_logger(__name__).warning("%s: %s: %s", operation, instead, reason)


def refresh() -> None:
    """Clear cached decisions and warnings after a change of backends or compiler."""
    decide.cache_clear()
    warn_once.cache_clear()


def check_tensor(name: str, value: object, shape: tuple[int | str, ...], like: Tensor) -> None:
    """Check an argument of a public function: floating tensor, shape, dtype and device.

    Args:
        name: name of the argument, for the message.
        value: the argument.
        shape: expected sizes; a string matches any size.
        like: tensor with the expected dtype and device.

    Raises:
        DataError: the argument does not match; the message has the expected and the given value.

    Example:
        >>> check_tensor("x", torch.zeros(2, 3), ("N", 3), torch.zeros(1))
    """
    wanted = str(shape).replace("'", "")
    if not isinstance(value, Tensor):
        raise DataError(f"expected {name} as a tensor of shape {wanted}, got {type(value)}")
    sizes = tuple(value.shape)
    fits = len(sizes) == len(shape) and all(
        isinstance(want, str) or size == want for size, want in zip(sizes, shape, strict=True)
    )
    if not fits:
        raise DataError(f"expected {name} of shape {wanted}, got {sizes}")
    if not value.is_floating_point():
        raise DataError(f"expected {name} of a floating dtype, got {value.dtype}")
    if value.dtype != like.dtype or value.device != like.device:
        raise DataError(
            f"expected {name} of {like.dtype} on {like.device}, got {value.dtype} on {value.device}"
        )

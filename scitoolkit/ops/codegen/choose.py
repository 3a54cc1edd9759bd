"""Which backend runs: the generated kernel where there is one, else the reference, said once."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from scitoolkit.core.errors import BackendError, ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.ops.codegen.gpu import check_triton

BACKENDS = ("auto", "cpu", "triton", "reference")
REAL = {torch.float32: "float", torch.float64: "double"}

# By operation: kernels(spec, dtype), which returns the loaded library or raises BackendError. By
# name, because torch.compile takes the choice as a constant and so needs constant arguments.
_KERNELS: dict[str, Callable] = {}
_GPU_KERNELS: dict[str, Callable] = {}


def kernels_of(operation: str) -> Callable[[Callable], Callable]:
    """Register the decorated `kernels(spec, dtype)` as the kernels of `operation`."""

    def decorate(kernels: Callable) -> Callable:
        return _KERNELS.setdefault(operation, kernels)

    return decorate


def gpu_kernels_of(operation: str) -> Callable[[Callable], Callable]:
    """Register the decorated `kernels(spec, dtype)` as the kernels of `operation` in Triton."""

    def decorate(kernels: Callable) -> Callable:
        return _GPU_KERNELS.setdefault(operation, kernels)

    return decorate


@functools.cache
def _say_once(operation: str, reason: str) -> None:
    get_logger(__name__).warning("%s: the slow reference runs: %s", operation, reason)


@functools.lru_cache(maxsize=1024)
def _why_not(operation: str, spec: str, dtype: torch.dtype, device: str, kind: str) -> str:
    """Return why kernels of a kind cannot run, or an empty text; compiles them if need be."""
    kernels = (_KERNELS if kind == "cpu" else _GPU_KERNELS).get(operation)
    if kernels is None or (kind == "cpu" and device != "cpu"):
        return f"there is no kernel for device {device}"
    if dtype not in REAL:
        return f"there is no kernel for {dtype}"
    try:
        if kind == "triton":
            check_triton(device)
        kernels(spec, dtype)
    except BackendError as error:
        return str(error)
    return ""


@torch.compiler.assume_constant_result
def _decide(operation: str, spec: str, dtype: torch.dtype, device: str, backend: str) -> str:
    kind = ("triton" if device == "cuda" else "cpu") if backend == "auto" else backend
    reason = _why_not(operation, spec, dtype, device, kind)
    if reason and backend != "auto":
        raise BackendError(reason, fix="backend='reference'")
    if reason:
        _say_once(operation, reason)
    return "reference" if reason else kind


def choose_backend(operation: str, spec: str, x: Tensor, backend: str) -> str:
    """Return the backend that runs on `x`; compiles its kernel when it is not yet there.

    Args:
        operation: name of the operation, as registered by `kernels_of` and `gpu_kernels_of`.
        spec: the operation as text.
        x: the tensor whose dtype and device decide.
        backend: auto, cpu, triton or reference.

    Returns:
        cpu, triton (only of operations with kernels in Triton) or reference.

    Raises:
        ConfigError: an unknown backend, or triton for an operation without kernels in Triton.
        BackendError: backend cpu or triton is asked for and cannot run.
    """
    allowed = [each for each in BACKENDS if each != "triton" or operation in _GPU_KERNELS]
    if backend not in allowed:
        raise ConfigError(f"backend={backend!r}", allowed=", ".join(allowed))
    if backend == "reference":
        return backend
    return _decide(operation, spec, x.dtype, x.device.type, backend)


def use_kernel(operation: str, spec: str, x: Tensor, backend: str) -> bool:
    """Tell whether the generated C runs on `x`, for operations that have no kernels in Triton.

    Arguments and errors are those of `choose_backend`.
    """
    return choose_backend(operation, spec, x, backend) == "cpu"


def check_tensor(name: str, value: object, shape: tuple[int | str, ...], like: Tensor) -> None:
    """Check a tensor at the public boundary against a shape and the dtype and device of another.

    Args:
        name: the argument's name, for the message.
        value: the argument.
        shape: expected sizes; a letter stands for any size.
        like: the tensor whose dtype and device it must have.

    Raises:
        DataError: naming the argument, what was expected and what was given.

    Example:
        >>> check_tensor("x", torch.zeros(2, 3), ("N", 3), torch.zeros(1))
    """
    wanted = str(shape).replace("'", "")
    if not isinstance(value, Tensor):
        raise DataError(f"expected {name} as a tensor of shape {wanted}, got {type(value)}")
    given = tuple(value.shape)
    fits = len(given) == len(shape) and all(
        isinstance(want, str) or size == want for size, want in zip(given, shape, strict=True)
    )
    if not fits:
        raise DataError(f"expected {name} of shape {wanted}, got {given}")
    if not value.is_floating_point():
        raise DataError(f"expected {name} of a floating dtype, got {value.dtype}")
    if value.dtype != like.dtype or value.device != like.device:
        raise DataError(
            f"expected {name} of {like.dtype} on {like.device}, got {value.dtype} on {value.device}"
        )

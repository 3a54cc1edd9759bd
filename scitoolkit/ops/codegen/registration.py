"""Registration of kernels as torch operators for autograd, torch.compile and torch.export."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from scitoolkit.core.errors import BackendError


def address(tensor: Tensor, function: Any) -> int:
    """Return the address of a tensor's first element for a C function.

    Every address that C receives is taken here: C would read one of another device's memory as
    its own, and the process would end by a signal.

    Args:
        tensor: on the CPU.
        function: C function that receives the address, for the message.

    Raises:
        BackendError: the tensor is on another device.
    """
    if not tensor.is_cpu:
        raise BackendError(
            f"a tensor of shape {tuple(tensor.shape)} on {tensor.device} for a kernel of the CPU",
            where=getattr(function, "__name__", str(function)),
            allowed="tensors on the CPU",
            fix="tensor.cpu(), or move all inputs and weights to one device",
        )
    return tensor.data_ptr()


def call(function: Any, *arguments: Any) -> None:
    """Call a C function with tensors as pointers, None as a null pointer and integers as int64.

    The caller must ensure contiguity, dtypes and sizes, which C cannot check.

    Raises:
        BackendError: a tensor that is not on the CPU.
    """
    values = [a if a is None or type(a) is int else address(a, function) for a in arguments]
    if function.argtypes is None:  # avoids the construction of a ctypes object per argument
        function.argtypes = [
            ctypes.c_int64 if type(a) is int else ctypes.c_void_p for a in arguments
        ]
        function.restype = None
    function(*values)


def operator(
    name: str,
    *,
    fake: Callable,
    setup_context: Callable | None = None,
    backward: Callable | None = None,
) -> Callable[[Callable], Callable]:
    """Register the decorated function as the operator `scitoolkit::name`.

    Args:
        name: name of the operator inside the namespace `scitoolkit`.
        fake: function that returns empty outputs of the right shape, dtype and device.
        setup_context: `setup_context(ctx, inputs, output)`, saves the tensors for `backward`.
        backward: `backward(ctx, *grad_outputs)`, composed of operators so that it is
            differentiable.
    """

    def decorate(function: Callable) -> Callable:
        registered = torch.library.custom_op(f"scitoolkit::{name}", function, mutates_args=())
        registered.register_fake(fake)
        if backward is not None:
            registered.register_autograd(backward, setup_context=setup_context)
        return registered

    return decorate


def eager(function: Callable, setup_context: Callable, backward: Callable) -> Callable:
    """Return a `torch.autograd.Function` with the same derivatives as a registered operator.

    With autograd, dispatching an operator implemented in Python takes about 0.2 ms, as long as a
    small kernel. In eager mode `torch.autograd.Function` takes a fraction of that.

    Args:
        function: the undecorated implementation.
        setup_context: as in `operator`.
        backward: as in `operator`.
    """

    # One forward with ctx: with a separate setup_context torch inspects the signature at each call.
    def forward(ctx, *arguments):
        output = function(*arguments)
        setup_context(ctx, arguments, output)
        return output

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made: Any = type(f"Eager{function.__name__}", (torch.autograd.Function,), members)
    return made.apply


def differentiable(
    name: str,
    *,
    fake: Callable,
    setup_context: Callable | None = None,
    backward: Callable | None = None,
    plain: Callable | None = None,
) -> Callable[[Callable], Callable]:
    """Return a decorator that registers an operator and bypasses the dispatcher in eager mode.

    Args:
        name: name of the operator inside the namespace `scitoolkit`.
        fake: as in `operator`.
        setup_context: as in `operator`.
        backward: as in `operator`; if None, differentiation raises BackendError.
        plain: called instead of the function in eager mode; may return views of its inputs.

    Returns:
        The decorator. The decorated function has the registered operator as attribute `operator`.
    """
    if backward is None:
        setup_context, backward = _save_nothing, _refusal(name)

    def decorate(function: Callable) -> Callable:
        traced = operator(name, fake=fake, setup_context=setup_context, backward=backward)(function)
        direct = plain or function
        recorded = eager(direct, setup_context, backward)  # type: ignore[arg-type]

        def apply(*arguments):
            if not is_eager(*arguments):
                return traced(*arguments)
            return (recorded if is_recorded(*arguments) else direct)(*arguments)

        apply.operator = traced  # type: ignore[attr-defined]
        return apply

    return decorate


def refusing(name: str, function: Callable) -> Callable:
    """Return `function` for eager mode such that differentiating it raises BackendError.

    Args:
        name: of the derivative, for the message.
        function: of tensors and other objects.
    """
    return eager(function, _save_nothing, _refusal(name))


def _save_nothing(ctx, inputs, output) -> None:
    """Do nothing: the context of functions without a derivative."""


def _refusal(name: str) -> Callable:
    def refuse(ctx, *cotangents):
        raise BackendError(f"the kernels have no derivative of {name}", fix="backend='reference'")

    return refuse


def functional(
    function: Callable,
    setup_context: Callable,
    backward: Callable,
    vmap: Callable,
    **others: Callable,
) -> Callable:
    """Return a `torch.autograd.Function` like that of `eager`, for the transforms of torch.func.

    Args:
        function: the undecorated implementation; receives plain tensors.
        setup_context: as in `operator`.
        backward: as in `operator`.
        vmap: `vmap(apply, size, in_dims, arguments)` returns one output or a tuple, each with the
            batch as first dimension; `apply` is the function returned here.
        **others: further static methods, such as `jvp`.
    """

    def forward(*arguments):  # torch would bind default arguments of the function itself
        return function(*arguments)

    def rule(info, in_dims, *arguments):
        outputs = vmap(made.apply, info.batch_size, in_dims, arguments)
        return outputs, (0,) * len(outputs) if isinstance(outputs, tuple) else 0

    members = {
        "forward": forward,
        "setup_context": setup_context,
        "backward": backward,
        "vmap": rule,
        **others,
    }
    static = {name: staticmethod(member) for name, member in members.items()}
    made: Any = type(f"Functional{function.__name__}", (torch.autograd.Function,), static)
    return made.apply


_PLAIN = (torch.Tensor, Parameter, type(None))


def is_eager(*arguments: object) -> bool:
    """Return whether torch runs eagerly: no compiler, export, tensor subclass or transform."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if torch._C._len_torch_dispatch_stack():
        return False
    for argument in arguments:  # a generator expression would dominate the cost of this function
        if type(argument) in _PLAIN or not isinstance(argument, torch.Tensor):
            continue
        return False
    return True


def is_transformed() -> bool:
    """Return whether torch.func or forward-mode AD is active outside of a tracer."""
    return (
        (torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0)
        and not torch.compiler.is_compiling()
        and not torch._C._len_torch_dispatch_stack()
    )


def is_traced_transform() -> bool:
    """Return whether a tracer records a torch.func transform, which no registered operator has."""
    return torch._C._are_functorch_transforms_active() and not is_transformed()


def is_recorded(*arguments: object) -> bool:
    """Return whether autograd, in reverse or forward mode, records operations on any argument."""
    if forward_ad._current_level >= 0:
        return True
    if torch.is_grad_enabled():
        for argument in arguments:
            if isinstance(argument, torch.Tensor) and argument.requires_grad:
                return True
    return False

"""From a loaded C function to a torch operator that autograd, torch.compile and export know."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch


def call(function: Callable, *arguments: torch.Tensor | int) -> None:
    """Call a C function with tensors as pointers and integers as int64.

    The caller answers for contiguity, dtypes and sizes: C cannot check them.
    """
    values = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
    if function.argtypes is None:  # known types spare an object per argument and call
        function.argtypes = [
            ctypes.c_void_p if isinstance(a, torch.Tensor) else ctypes.c_int64 for a in arguments
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
        fake: the function that returns empty outputs of the right shape, dtype and device.
        setup_context: `setup_context(ctx, inputs, output)`, saving what `backward` needs.
        backward: `backward(ctx, *grad_outputs)`, in terms of operators so that it can be
            differentiated again.
    """

    def decorate(function: Callable) -> Callable:
        registered = torch.library.custom_op(f"scitoolkit::{name}", function, mutates_args=())
        registered.register_fake(fake)
        if backward is not None:
            registered.register_autograd(backward, setup_context=setup_context)
        return registered

    return decorate


def eager(function: Callable, setup_context: Callable, backward: Callable) -> Callable:
    """Return a function of plain tensors with the same derivatives as a registered operator.

    The dispatcher's way through an operator written in Python takes about 0.2 ms with autograd,
    as long as a small kernel. In eager mode `torch.autograd.Function` takes a fraction of it.

    Args:
        function: the undecorated implementation.
        setup_context: as in `operator`.
        backward: as in `operator`.
    """

    # One forward with ctx: with a separate setup_context, torch inspects the signature each time.
    def forward(ctx, *arguments):
        output = function(*arguments)
        setup_context(ctx, arguments, output)
        return output

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(f"Eager{function.__name__}", (torch.autograd.Function,), members).apply


def is_eager(*tensors: torch.Tensor | None) -> bool:
    """Tell whether nobody but autograd watches: no compiler, export, subclass or transform."""
    if torch.compiler.is_compiling():
        return False
    return (
        all(each is None or type(each) in (torch.Tensor, torch.nn.Parameter) for each in tensors)
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._len_torch_dispatch_stack()
    )

"""From a loaded C function to a torch operator that autograd, torch.compile and export know."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch


def call(function: Callable, *arguments: torch.Tensor | int) -> None:
    """Call a C function with tensors as pointers and integers as int64.

    The caller answers for contiguity, dtypes and sizes: C cannot check them.
    """
    function(
        *(
            ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_int64(a)
            for a in arguments
        )
    )


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

"""Compilation of a model by torch.compile for the time of a training, block by block."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from logging import Logger
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from scitoolkit.core.errors import ConfigError, Interrupted
from scitoolkit.core.log import get_logger
from scitoolkit.training.memory.recompute import blocks

log: Logger = get_logger(__name__)
BACKEND = "inductor"


class CompiledModel:
    """The compiled parts of a model until `detach`, in which it can be compiled no more.

    Blocks are compiled rather than the model where it has some: equal ones are compiled once, and
    the time does not grow with the depth. The first dimension of inputs may vary, so that the
    last, smaller batch of an epoch is not compiled again.

    Args:
        model: the model to train.

    Attributes:
        parts: the compiled modules.

    Example:
        >>> def layers():
        ...     return nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        >>> net = nn.Sequential(layers(), layers())
        >>> compiled = CompiledModel(net)
        >>> compiled.parts == [net[0], net[1]]
        True
        >>> compiled.detach()
    """

    def __init__(self, model: nn.Module) -> None:
        composite = [block for block in blocks(model) if next(block.children(), None) is not None]
        self.parts: list[nn.Module] = composite if len(composite) > 1 else [model]
        self._name = type(model).__name__
        self._is_told = False
        made: dict[object, Callable[..., Any]] = {}
        for part in self.parts:
            shapes = tuple((n, t.shape) for n, t in part.state_dict().items())
            kind = type(part), repr(part), shapes
            if kind not in made:
                made[kind] = _compiled_function(len(made))
            part._compiled_call_impl = functools.partial(_with_free_batch, made[kind], part)

    def detach(self) -> None:
        """Let the modules run as they are."""
        for part in self.parts:
            part._compiled_call_impl = None

    @contextlib.contextmanager
    def told(self, stop: Callable[[], str]) -> Iterator[None]:
        """Return the context of a step; that of the first, which compiles, is logged.

        Args:
            stop: returns the name of a received signal, or an empty string.

        Raises:
            Interrupted: a signal was received, and ended the compiler as well.
        """
        if self._is_told:
            yield
            return
        what = "the model" if len(self.parts) == 1 else f"{len(self.parts)} blocks"
        log.info("compiling %s of %s in the first step", what, self._name)
        begin = time.perf_counter()
        try:
            yield
        except Exception as error:
            if name := stop():
                raise Interrupted(f"stopped by {name} while the first step compiled") from error
            raise
        self._is_told = True
        log.info("compiled; the first step took %.1f s", time.perf_counter() - begin)


def check_traceable(model: nn.Module) -> None:
    """Check that no module of a model says that it cannot be compiled.

    Raises:
        ConfigError: a module has the attribute `not_compiled`, which gives the reason.
    """
    for name, module in model.named_modules():
        if reason := getattr(module, "not_compiled", ""):
            where = f" ({name})" if name else ""
            raise ConfigError(
                f"{type(module).__name__}{where} cannot be compiled: {reason}",
                where="training.compile",
                fix="training.compile=false",
            )


def _call(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return module._call_impl(*arguments, **named)


def _compiled_function(number: int) -> Callable[..., Any]:
    """Return `_call` compiled, with a code object that no other part shares.

    torch remembers by name which sizes differ between calls of a code object, and counts its
    compilations. The levels of a U-Net would be one code for fields of any size.
    """
    code = _call.__code__.replace(co_name=f"_call_{number}")
    return torch.compile(FunctionType(code, globals(), code.co_name), backend=BACKEND)


def _with_free_batch(
    run: Callable[..., Any], module: nn.Module, *arguments: Any, **named: Any
) -> Any:
    for tensor in tree_leaves((arguments, named)):
        if isinstance(tensor, Tensor) and tensor.dim() and len(tensor) > 1:
            # Not `mark_dynamic`, which fails where a model fixes the size (two rows of edges).
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
    return run(module, arguments, named)

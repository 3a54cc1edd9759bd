"""Compilation of a model by torch.compile for the time of a training, block by block."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from logging import Logger
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from scitoolkit.core.errors import ConfigError
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
        # By default a function is compiled 8 times at most, and then runs as it is.
        self._limit = torch._dynamo.config.recompile_limit
        torch._dynamo.config.recompile_limit = self._limit + 2 * len(self.parts)
        for part in self.parts:
            part._compiled_call_impl = _with_free_batch(part)

    def detach(self) -> None:
        """Let the modules run as they are."""
        torch._dynamo.config.recompile_limit = self._limit
        for part in self.parts:
            part._compiled_call_impl = None

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Return the context of a step; that of the first, which compiles, is logged."""
        if self._is_told:
            yield
            return
        whole = self.parts[0] if len(self.parts) == 1 else None
        what = "the model" if whole is not None else f"{len(self.parts)} blocks"
        log.info("compiling %s of %s in the first step", what, self._name)
        begin = time.perf_counter()
        yield
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
                allowed="false",
                fix="training.compile=false",
            )


def _with_free_batch(module: nn.Module) -> Callable[..., Any]:
    call = torch.compile(module._call_impl, backend=BACKEND)

    def run(*arguments: Any, **named: Any) -> Any:
        for tensor in tree_leaves((arguments, named)):
            if isinstance(tensor, Tensor) and tensor.dim() and len(tensor) > 1:
                # Not `mark_dynamic`, which fails where a model fixes the size (two rows of edges).
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
        return call(*arguments, **named)

    return run

"""Activation checkpointing of layers that exchange halos.

`torch.utils.checkpoint` runs a function again in the backward pass, outside the model's forward
pass. The repetition must run inside the same mode, with the tags of its arguments and the seeds of
its dropout, so that it exchanges and computes the same rows.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch.utils.checkpoint as checkpoints
from torch import Tensor

from scitoolkit.graphs.tags import Tag, put_tag, tag_of

Repeat = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Returns a function that runs another one as it would run now."""

# Simulated ranks are threads of one process: each has its repetition in a context variable, while
# torch's functions are replaced once for all, until the last user leaves.
_REPEAT: ContextVar[Repeat | None] = ContextVar("how to repeat a function", default=None)
_LOCK = threading.Lock()
_NAMES = ("CheckpointFunction", "_checkpoint_without_reentrant_generator")
_originals: dict[str, Any] = {}
_users: int = 0


@contextlib.contextmanager
def repeated_by(repeat: Repeat) -> Iterator[None]:
    """Return a context in which checkpointed functions are repeated by `repeat`.

    Args:
        repeat: called when a function runs for the first time; it returns the function that the
            backward pass calls.
    """
    token = _REPEAT.set(repeat)
    _install()
    try:
        yield
    finally:
        _uninstall()
        _REPEAT.reset(token)


def _install() -> None:
    global _users
    with _LOCK:
        _users += 1
        if _users == 1:
            _originals.update({name: getattr(checkpoints, name) for name in _NAMES})
            for name, replacement in zip(_NAMES, (_Reentrant, _generator), strict=True):
                setattr(checkpoints, name, replacement)


def _uninstall() -> None:
    global _users
    with _LOCK:
        _users -= 1
        if _users == 0:
            for name, original in _originals.items():
                setattr(checkpoints, name, original)


class _Reentrant:
    """Replacement of torch's CheckpointFunction, whose two passes call the same function."""

    @staticmethod
    def apply(function: Any, preserve: bool, *args: Any) -> Any:
        original, repeat = _originals["CheckpointFunction"], _REPEAT.get()
        if repeat is None:
            return original.apply(function, preserve, *args)
        again, tags = _with_tags(repeat(function), args), [tag_of(a) for a in args]
        outputs: list[Tag | None] = []

        def run(*inputs: Any) -> Any:
            # The first call is the forward pass, which runs inside the mode already and tells the
            # tags of the results; every later one is a repetition.
            if outputs:
                return again(*inputs)
            out = function(*(_tagged(a, tag) for a, tag in zip(inputs, tags, strict=True)))
            outputs.extend(tag_of(result) for result in _several(out))
            return out

        out = original.apply(run, preserve, *args)
        for result, tag in zip(_several(out), outputs, strict=True):
            _tagged(result, tag)
        return out


def _generator(function: Any, *arguments: Any, **kwargs: Any) -> Any:
    repeat = _REPEAT.get()
    if repeat is not None:
        function = _with_tags(repeat(function), arguments)
    return _originals["_checkpoint_without_reentrant_generator"](function, *arguments, **kwargs)


def _with_tags(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a function that gives its arguments the tags of the last of `arguments`.

    Integers are `arguments` themselves: a copy of the edges would not be known as the edges.
    """
    last = [a if _is_integer(a) else tag_of(a) for a in arguments]

    def call(*args: Any, **kwargs: Any) -> Any:
        own = zip(args, last[len(last) - len(args) :], strict=True)
        return function(*(b if _is_integer(b) else _tagged(a, b) for a, b in own), **kwargs)

    return call


def _is_integer(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_floating_point()


def _tagged(value: Any, tag: Tag | None) -> Any:
    return put_tag(value, tag) if tag is not None and isinstance(value, Tensor) else value


def _several(out: Any) -> tuple[Any, ...]:
    return out if isinstance(out, tuple) else (out,)

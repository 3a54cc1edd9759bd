"""Selections by constant masks, such as the cells of the ocean, while a module is traced.

A trace knows shapes and no values: `x[:, ocean]` has no shape there, although the mask never
changes. Here the values of a module's constants, and of what it computes from them alone, are
followed beside the trace, and such a mask is replaced by the places of its elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

_PLACES: tuple[Any, ...] = (Tensor.nonzero, torch.nonzero, torch.argwhere, torch.where)
"""Functions whose results have as many elements as a mask selects."""
_MADE: tuple[Any, ...] = (
    *(torch.tensor, torch.zeros, torch.ones, torch.full, torch.eye, torch.arange),
    *(torch.tril_indices, torch.triu_indices, torch.linspace),
)
"""Functions that make constants."""

_CHANGES = (
    "__setitem__ __set__ __iadd__ __isub__ __imul__ __itruediv__ __idiv__ __ifloordiv__ __imod__ "
    "__ipow__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__"
).split()
"""Names of operators that change their first argument."""


class ConstantValues(TorchFunctionMode):
    """Mode that follows the values of a module's constants during a trace.

    Args:
        module: the module before the trace.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._stored = {name: x.detach().clone() for name, x in _tensors(module).items()}
        self._values: dict[int, tuple[Tensor, Tensor]] = {}

    def begin(self, module: nn.Module, arguments: Any = None) -> None:
        """Assign the values to the tensors that stand for them in a trace; a hook of a forward."""
        # Copies, as what the module changes in place is changed here too.
        with _disable_current_modes():
            copies = {name: x.clone() for name, x in self._stored.items()}
        self._values = {id(x): (x, copies[name]) for name, x in _tensors(module).items()}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch in the trace, and with the values of constants."""
        kwargs = kwargs or {}
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            args = (args[0], self._places(args[1]), *args[2:])
        value = self._value(func, args, kwargs)
        if func in _PLACES and value is not None and len(args) + len(kwargs) == 1:
            return tree_map(self._constant, value)
        if value is not None and not any(isinstance(x, Tensor) for x in tree_leaves(value)):
            return value  # a number or truth value that the module branches on
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and isinstance(value, Tensor):
            self._values[id(result)] = (result, value)
        return result

    def _value(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the result of a function of constants; None if it has other arguments."""
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if not tensors and func not in _MADE:
            return None
        if all(id(x) in self._values for x in tensors):
            own, named = tree_map(self._known, (args, kwargs))
            with _disable_current_modes(), torch.no_grad():
                return func(*own, **named)
        name = getattr(func, "__name__", "")
        if "out" in kwargs or name in _CHANGES or (name.endswith("_") and name[-2:] != "__"):
            for x in tree_leaves((args[:1], kwargs.get("out"))):
                self._forget(x)
        return None

    def _known(self, x: Any) -> Any:
        return self._values[id(x)][1] if isinstance(x, Tensor) else x

    def _forget(self, x: Any) -> None:
        """Remove the value of a tensor and of all that share its memory."""
        if isinstance(x, Tensor) and id(x) in self._values:
            memory = self._values[id(x)][1].untyped_storage().data_ptr()
            self._values = {
                key: pair
                for key, pair in self._values.items()
                if pair[1].untyped_storage().data_ptr() != memory
            }

    def _places(self, index: Any) -> Any:
        """Return an index with the places of the elements of known masks."""
        made: list[Any] = []
        for part in index if isinstance(index, tuple) else (index,):
            if isinstance(part, Tensor) and part.dtype == torch.bool and id(part) in self._values:
                with _disable_current_modes():
                    places = self._known(part).nonzero(as_tuple=True)
                made += [self._constant(x) for x in places] if part.ndim else [part]
            else:
                made.append(part)
        return tuple(made)

    def _constant(self, value: Tensor) -> Tensor:
        with _disable_current_modes():
            entries = value.tolist()
        made = torch.tensor(entries, dtype=value.dtype).reshape(value.shape)
        self._values[id(made)] = (made, value)
        return made


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters, buffers and other tensors of a module by name."""
    return {
        f"{place}.{name}": x
        for place, part in module.named_modules()
        for name, x in (
            *part.named_parameters(recurse=False, remove_duplicate=False),
            *part.named_buffers(recurse=False, remove_duplicate=False),
            *vars(part).items(),
        )
        if isinstance(x, Tensor)
    }

"""Weights files of other codes, whose every key must be read, else the file is refused."""

from __future__ import annotations

import errno
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scitoolkit.core.errors import DataError

SHOWN = 4  # unread keys that an error names


class ConsumedState:
    """State dict that records which keys were read.

    A key that a reader does not know may change the model's energies, so `finish` refuses a state
    dict with unread keys.

    Args:
        state: tensors by name.
        where: file or kind of model, for error messages.

    Example:
        >>> import torch
        >>> state = ConsumedState({"weight": torch.zeros(2), "bias": torch.zeros(1)}, "a model")
        >>> tuple(state.take("weight").shape)
        (2,)
        >>> state.unread()
        ['bias']
    """

    def __init__(self, state: Mapping[str, Tensor], where: str) -> None:
        self._state, self.where = dict(state), where
        self._unread = dict.fromkeys(self._state)

    def __contains__(self, name: str) -> bool:
        return name in self._state

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        """Return a tensor and mark it as read.

        Args:
            name: key.
            shape: required shape, if any.

        Raises:
            DataError: the key is missing, or the tensor has another shape.
        """
        if name not in self._state:
            raise DataError(f"the state dict has no {name}", where=self.where)
        value = self._state[name]
        if shape is not None and tuple(value.shape) != shape:
            raise DataError(
                f"{name} has shape {tuple(value.shape)}", where=self.where, allowed=str(shape)
            )
        self._unread.pop(name, None)
        return value

    def unread(self) -> list[str]:
        """Return the keys that were not read."""
        return list(self._unread)

    def finish(self, allowed: str) -> None:
        """Refuse the state dict if a key was not read.

        Args:
            allowed: supported kinds of models, for the message.

        Raises:
            DataError: a key was not read.
        """
        refuse_unread(self.unread(), self.where, allowed)


class ConsumedTree(dict[str, Any]):
    """Nested mapping that records which of its values were read.

    Nested mappings, also those in lists, are of this class. Reading a leaf marks it as read;
    reading a mapping does not mark the keys in it.
    """

    def __init__(self, tree: Mapping[str, Any]) -> None:
        super().__init__({key: _consumed(value) for key, value in tree.items()})
        self._read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self._read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value and mark it as read."""
        return self[key] if key in self else default

    def unread(self, prefix: str = "") -> list[str]:
        """Return the dotted keys that were not read."""
        unread: list[str] = []
        for key, value in super().items():
            if key not in self._read:
                unread.append(prefix + key)
            else:
                unread += _unread(value, f"{prefix}{key}.")
        return unread


def _consumed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ConsumedTree(value)
    return [_consumed(item) for item in value] if isinstance(value, list) else value


def _unread(value: Any, prefix: str) -> list[str]:
    if isinstance(value, ConsumedTree):
        return value.unread(prefix)
    if isinstance(value, list):
        return [key for i, item in enumerate(value) for key in _unread(item, f"{prefix}{i}.")]
    return []


def refuse_unread(unread: list[str], where: str, allowed: str) -> None:
    """Raise an error that names the unread keys, if there are any.

    Raises:
        DataError: `unread` is not empty.
    """
    if not unread:
        return
    more = f" and {len(unread) - SHOWN} more" if len(unread) > SHOWN else ""
    raise DataError(
        f"it holds {', '.join(unread[:SHOWN])}{more}, which no model here reads",
        where=where,
        allowed=allowed,
    )


def load_tensors(path: Path | str, fix: str) -> Any:
    """Return what a file of `torch.save` holds; pickled code is never executed.

    Args:
        path: file.
        fix: what to do with a file of another kind, for the error.

    Raises:
        DataError: no such file, a damaged file, or one that contains code.
    """
    where = str(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError("no such file", where=where) from None
    except OSError as error:
        if error.errno != errno.EINVAL:  # torch seeks beyond the bounds of a damaged file
            raise
        raise DataError("a damaged file of tensors", where=where, fix=fix) from None
    except pickle.UnpicklingError as error:
        code = re.search(r"GLOBAL (\S+)", str(error))
        raise DataError(
            "not a file of tensors"
            + (f": it contains {code[1]}, and pickled code is not executed" if code else ""),
            where=where,
            fix=fix,
        ) from None
    except (RuntimeError, EOFError, LookupError, TypeError, ValueError, AttributeError):
        raise DataError("a damaged file of tensors, or not one", where=where, fix=fix) from None

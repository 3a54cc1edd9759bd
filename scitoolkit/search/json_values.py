"""Values of parameters as JSON holds them: equality, plain numbers, and what JSON cannot hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def without_numpy(value: Any) -> Any:
    """Return numpy's scalars and arrays as plain numbers and lists, other values as they are.

    Example:
        >>> without_numpy(np.int64(3)), without_numpy(np.arange(2)), without_numpy("a")
        (3, [0, 1], 'a')
    """
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def json_data(value: Any) -> Any:
    """Return data with JSON's types: string keys, tuples as lists."""
    if isinstance(value, Mapping):
        return {str(k): json_data(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_data(v) for v in value]
    return value


def plain_values(values: Sequence[Any] | np.ndarray) -> tuple[Any, ...]:
    """Return the values of a list, range or array as plain numbers."""
    return tuple(map(without_numpy, values))


def same_value(a: Any, b: Any) -> bool:
    """Return whether two values are equal in JSON, where lists and tuples are the same.

    Strings of a configuration file are of a class of their own, which remembers their line.
    """
    # In Python True == 1, in JSON they differ: the types are compared as well.
    if (type(a) is type(b) or (isinstance(a, str) and isinstance(b, str))) and a == b:
        return True
    if isinstance(a, list | tuple | Mapping) and isinstance(b, list | tuple | Mapping):
        return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    number = (int, float)
    plain = isinstance(a, number) and isinstance(b, number)
    return plain and not isinstance(a, bool) and not isinstance(b, bool) and a == b


def is_listed(value: Any, others: Sequence[Any]) -> bool:
    """Return whether a value is among others in the sense of `same_value`."""
    return any(same_value(other, value) for other in others)


def is_finite(number: float) -> bool:
    """Return whether a number is finite in double precision, also an integer beyond it."""
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond double precision
        return False


def not_json(values: Sequence[Any]) -> str:
    """Return which of the values JSON cannot hold, and what to write for several values."""
    for value in values:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            break
    text = f"{value!r:.60} is a {type(value).__name__}"
    return text if isinstance(value, float | str) else f"{text} (for its elements: list(...))"

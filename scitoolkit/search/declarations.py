"""Parameters as users write them: functions of Python, and plain data of a configuration file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.search.json_values import is_finite, plain_values, without_numpy
from scitoolkit.search.parameters import (
    SPREAD,
    Categorical,
    Chain,
    Integer,
    Parameter,
    Real,
    SteppedReal,
    When,
)

logger = get_logger(__name__)


def choice(*values: Any, when: When | None = None, prior: Any = None) -> Categorical:
    """Return a categorical parameter with the given values; see `Categorical`."""
    return Categorical(plain_values(values), _read_when(when), without_numpy(prior))


def integer(
    low: int,
    high: int,
    *,
    step: int = 1,
    log: bool = False,
    when: When | None = None,
    prior: int | None = None,
    spread: float = SPREAD,
) -> Integer | Categorical:
    """Return an integer parameter between two inclusive bounds; see `Integer`.

    Equal bounds give a choice of one value. Integers of other libraries become plain ones.
    `prior` and `spread` are those of `real`.
    """
    low, high, step = _whole(low), _whole(high), _whole(step)
    if _is_one_value(low, high):
        return Categorical((low,), _read_when(when))
    expected = without_numpy(prior)
    return Integer(low, high, step, bool(log), _read_when(when), expected, float(spread))


def real(
    low: float,
    high: float,
    *,
    step: float | None = None,
    log: bool = False,
    when: When | None = None,
    prior: float | None = None,
    spread: float = SPREAD,
) -> Real | SteppedReal | Categorical:
    """Return a real parameter between two bounds; with `step`, on a grid that starts at `low`.

    Equal bounds give a choice of one value. Near `prior` the best value is expected: samples are
    normal around it with a standard deviation of `spread` of the range (of its logarithm if
    `log`), a quarter of them uniform, and the Gaussian process prefers it as long as it has few
    trials.

    Example:
        >>> import random
        >>> rate = real(1e-5, 1, log=True, prior=1e-3, spread=0.1)
        >>> draws = sorted(rate.sample(random.Random(seed)) for seed in range(1000))
        >>> 8e-4 < draws[500] < 1.25e-3
        True
    """
    low, high = _float("low", low), _float("high", high)
    if _is_one_value(low, high):
        return Categorical((low,), _read_when(when))
    expected = None if prior is None else _float("prior", prior)
    more = bool(log), _read_when(when), expected, _float("spread", spread)
    return (
        Real(low, high, *more)
        if step is None
        else SteppedReal(low, high, _float("step", step), *more)
    )


def chain(nodes: int, choices: Sequence[Any], *, reach: int = 0, when: When | None = None) -> Chain:
    """Return an architecture parameter: nodes with optional skip connections; see `Chain`."""
    return Chain(nodes, tuple(choices), reach, _read_when(when))


def read_parameter(name: str, plain: Any) -> Parameter:
    """Return the parameter described by plain data from YAML or Python.

    Args:
        name: of the parameter, for messages.
        plain: a parameter, a list of values, a single value, or a mapping with the keys of one
            parameter type.

    Raises:
        ConfigError: the data describes no parameter.

    Example:
        >>> read_parameter("layers", [1, 2, 3]).values
        (1, 2, 3)
        >>> read_parameter("lr", {"low": 1e-4, "high": 1e-2, "log": True}).log
        True
    """
    if isinstance(plain, Categorical | Integer | SteppedReal | Real | Chain):
        return plain
    if isinstance(plain, list | tuple | range | np.ndarray):
        return Categorical(plain_values(plain))
    if not isinstance(plain, Mapping):
        return Categorical((without_numpy(plain),))
    keys = plain.keys() - {"when"}
    try:
        when = _read_when(plain.get("when"))
        if {"values"} <= keys <= {"values", "prior"}:
            values = _read_list(plain["values"], "values")
            return Categorical(values, when, without_numpy(plain.get("prior")))
        if {"low", "high"} <= keys <= {"low", "high", "log", "step", "prior", "spread"}:
            return _number(plain, when)
        if {"nodes", "choices"} <= keys <= {"nodes", "choices", "reach"}:
            nodes, reach = plain["nodes"], plain.get("reach", 0)
            return Chain(int(nodes), _read_list(plain["choices"], "choices"), int(reach), when)
    except (TypeError, ValueError, ConfigError) as error:
        raise ConfigError(
            f"{plain!r} does not describe a parameter ({error})", where=f"space.{name}"
        ) from None
    raise ConfigError(
        f"keys {', '.join(sorted(map(str, keys))) or 'none'} describe no parameter",
        where=f"space.{name}",
        allowed="[VALUE, ...] | {values, prior} | {low, high, log, step, prior, spread} | {nodes, "
        "choices, reach}, each optionally with `when`",
    )


def _number(plain: Mapping[str, Any], when: When) -> Parameter:
    low, high, step, log = plain["low"], plain["high"], plain.get("step"), plain.get("log", False)
    if not isinstance(log, bool | np.bool_):
        raise ValueError(f"`log` is {log!r}, not true or false")
    for name in ("low", "high"):
        if isinstance(plain[name], bool | np.bool_):
            raise ValueError(f"`{name}` is {plain[name]}, not a number")
    low, high, step = _whole(low), _whole(high), _whole(step)
    more: dict[str, Any] = {"log": bool(log), "when": when, "prior": plain.get("prior")}
    more["spread"] = _float("spread", plain.get("spread", SPREAD))
    if isinstance(low, int) and isinstance(high, int) and (step is None or isinstance(step, int)):
        if high == low + 1 and not log:
            logger.warning(
                "{low: %d, high: %d} are the integers %d and %d; write %d.0 for real numbers",
                *(low, high, low, high, low),
            )
        return integer(low, high, step=1 if step is None else step, **more)
    return real(low, high, step=step, **more)


def _read_list(value: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple | range | np.ndarray):
        raise ValueError(f"`{name}` is {value!r}, not a list")
    return plain_values(value)


def _whole(number: Any) -> Any:
    """Return an integer of any library as a plain one, other values as they are."""
    return int(number) if isinstance(number, np.integer) else number


def _float(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{name} is {value!r:.60}, not a number", where="real") from None


def _is_one_value(low: Any, high: Any) -> bool:
    number = (int, float)
    plain = isinstance(low, number) and isinstance(high, number)
    return plain and not isinstance(low, bool) and low == high and is_finite(low)


def _read_when(plain: Any) -> When:
    if plain is None:
        return {}
    if not isinstance(plain, Mapping):
        raise ConfigError(f"`when` is {plain!r}", allowed="{PARAMETER: [VALUE, ...]}")
    out = {}
    for name, values in plain.items():
        values = without_numpy(values)
        several = isinstance(values, list | tuple | range)
        out[str(name)] = list(plain_values(values)) if several else [values]
    return out

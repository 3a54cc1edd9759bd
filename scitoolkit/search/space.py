"""Search space: named parameters with conditions; sampling, mutation, encoding and counting.

Internally a configuration is a tuple of codes, one per independent variable: the index of a
choice or of an integer, the value of a real, None where a condition makes the variable inactive.
Two configurations are equal if and only if their codes are equal, which is how a search detects
duplicates. The public interface uses plain dictionaries.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from scitoolkit.core.config import ConfigProblems, Problem
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import did_you_mean, nearest_name
from scitoolkit.search.declarations import read_parameter
from scitoolkit.search.json_values import json_data, without_numpy
from scitoolkit.search.parameters import Chain, Parameter, Real, Variable

Codes = tuple[Any, ...]
Configuration = dict[str, Any]
TRIES = 10_000
ENUMERABLE = 100_000
"""Number of configurations up to which those that satisfy `where` are listed."""


_UNNAMED = -1
"""Code of all values of a variable that no condition names."""


class Space:
    """Search space over named parameters.

    Args:
        parameters: mapping from names to `choice(...)`, `integer(...)`, `real(...)`,
            `chain(...)`, a list of values, or the equivalent plain data of a YAML file. Dotted
            names are keys of a configuration file.
        where: predicate that every configuration must satisfy. It is applied by rejection
            sampling, so a considerable share of all configurations should satisfy it.
        derived: values that follow from the others, by name: functions of a configuration. An
            equality is solved for one of its variables in this way, such as
            `{"c": lambda v: 1 - v["a"] - v["b"]}`; `where` sees them. Strategies do not.

    Raises:
        ConfigProblems: all errors of the description, one per line.

    Example:
        >>> from scitoolkit.search import Space, chain, choice, real
        >>> space = Space({
        ...     "cells": chain(5, [0, 16, 32, 48, 64, 80, 96], reach=2),
        ...     "head": ["all_steps", "last_state", "encoder_decoder"],
        ...     "teacher_forcing": choice(False, True, when={"head": ["encoder_decoder"]}),
        ... })
        >>> space.size == 7**5 * 2**9 * (1 + 1 + 2)
        True
        >>> configuration = space.sample(random.Random(0))
        >>> space.decode(space.encode(configuration)) == configuration
        True
    """

    def __init__(
        self,
        parameters: Mapping[str, Any],
        where: Callable[[Configuration], bool] | None = None,
        derived: Mapping[str, Callable[[Configuration], Any]] | None = None,
    ) -> None:
        if not isinstance(parameters, Mapping):
            raise ConfigProblems(
                [Problem("space", f"{parameters!r:.80} is not a mapping from names to parameters")]
            )
        if where is not None and not callable(where):
            raise ConfigProblems([Problem("space.where", f"{where!r} is not a function")])
        self.where = where
        self._is_rare = False  # whether samples hardly ever satisfy `where`
        self.derived: dict[str, Callable[[Configuration], Any]] = dict(derived or {})
        self.parameters: dict[str, Parameter] = {}
        problems: list[Problem] = []
        for name, plain in parameters.items():
            if not str(name) or str(name) in self.parameters:
                what = "another parameter has that name" if str(name) else "a parameter has no name"
                problems.append(Problem(f"space.{name}", what))
            try:
                self.parameters[str(name)] = read_parameter(str(name), plain)
            except ConfigError as error:
                problems.append(Problem(str(name), str(error)))
        problems += [Problem(f"space.{n}", p.problem()) for n, p in self._invalid_parameters()]
        for name, function in self.derived.items():
            if name in self.parameters or not callable(function):
                what = "is a parameter too" if callable(function) else "is not a function"
                problems.append(Problem(f"space.derived.{name}", what))
        if not parameters:
            problems.append(Problem("space", "the space has no parameters"))
        if problems:
            raise ConfigProblems(problems)
        self.variables: dict[str, Variable] = self._flatten()
        self._names = list(self.variables)
        self._position = {name: i for i, name in enumerate(self._names)}
        self._kinds = list(self.variables.values())
        self._check_conditions()
        self.order: list[int] = self._topological()
        self.conditions: list[list[tuple[int, frozenset[Any]]]] = self._code_conditions()
        """Per variable: the positions that it depends on, and the codes that make it active."""

    # --- public interface -------------------------------------------------------------------

    @cached_property
    def size(self) -> int | float:
        """Number of distinct configurations, ignoring `where`; infinite with a real parameter."""
        # Only variables that conditions refer to are enumerated; the levels of all others multiply.
        controls = [i for i in self.order if any(i in dict(c) for c in self.conditions)]
        free = [i for i in range(len(self._kinds)) if i not in controls]
        return self._count(controls, free, [None] * len(self._kinds), 0)

    def sample(self, rng: random.Random) -> Configuration:
        """Draw a configuration; every active variable is sampled uniformly (in its scale)."""
        return self.decode(self.sample_codes(rng))

    def mutate(self, configuration: Configuration, rng: random.Random) -> Configuration:
        """Return a copy of a configuration in which one variable has another value."""
        return self.decode(self.mutate_codes(self.encode(configuration), rng))

    def encode(self, configuration: Mapping[str, Any], *, drop_inactive: bool = False) -> Codes:
        """Return the codes of a configuration.

        Args:
            configuration: values by name.
            drop_inactive: whether values of inactive parameters are ignored, not refused.

        Raises:
            ConfigError: a parameter is missing, unknown, or has a value outside the space.
        """
        stated = {n: v for n, v in configuration.items() if n not in self.derived}
        values = self._split_chains(stated)
        codes: list[Any] = [None] * len(self._names)
        for i in self.order:
            name = self._names[i]
            if not self.active(i, codes):
                if name in values and not drop_inactive:
                    raise ConfigError("is inactive: its condition is not met", where=name)
                continue
            if name not in values:
                raise ConfigError("missing", where=name)
            try:
                codes[i] = self._kinds[i].code(values[name])
            except (TypeError, ValueError) as error:
                raise ConfigError(str(error), where=name) from None
        if len(stated) < len(configuration):
            self._check_derived(configuration, self.decode(codes))
        return tuple(codes)

    def _check_derived(self, configuration: Mapping[str, Any], own: Configuration) -> None:
        for name in self.derived.keys() & configuration.keys():
            value = without_numpy(configuration[name])
            number = isinstance(value, int | float) and isinstance(own.get(name), int | float)
            near = number and math.isclose(value, own[name], rel_tol=1e-9, abs_tol=1e-12)
            if not near and json_data(value) != own.get(name):
                raise ConfigError(
                    f"{value!r} is not {own.get(name)!r}, which follows from the others", where=name
                )

    def decode(self, codes: Sequence[Any]) -> Configuration:
        """Return the configuration with the stated codes, without inactive parameters."""
        values = [
            None if c is None else kind.value(c) for kind, c in zip(self._kinds, codes, strict=True)
        ]
        out, position = {}, 0
        for name, parameter in self.parameters.items():
            count = self._widths[name]
            if codes[position] is not None:
                part = values[position : position + count]
                out[name] = parameter.assemble(part) if isinstance(parameter, Chain) else part[0]
            position += count
        for name, function in self.derived.items():
            try:
                out[name] = json_data(without_numpy(function(dict(out))))
            except Exception as error:
                raise ConfigError(
                    f"raised {type(error).__name__}: {error} for {out}",
                    where=f"space.derived.{name}",
                    allowed="a function of every configuration; inactive parameters are absent",
                ) from error
        return out

    def describe(self) -> dict[str, Any]:
        """Return plain data from which `Space` rebuilds this space, except for `where`."""
        return {name: parameter.describe() for name, parameter in self.parameters.items()}

    def difference(self, other: Mapping[str, Any]) -> list[str]:
        """Return the differences from the description of another space, one per line."""
        mine, lines = json_data(self.describe()), []
        for name in sorted(mine.keys() | other.keys()):
            before, now = other.get(name), mine.get(name)
            if before is None:
                lines.append(f"+ {name}: {now}")
            elif now is None:
                lines.append(f"- {name}: {before}")
            elif before != now:
                lines.append(f"~ {name}: {before} -> {now}")
        return lines

    def features(self, codes: Sequence[Any]) -> list[float]:
        """Return one number per variable for statistics; -1 for inactive variables."""
        return [
            -1.0 if c is None else kind.unit(c) if isinstance(kind, Real) else float(c)
            for kind, c in zip(self._kinds, codes, strict=True)
        ]

    # --- interface for strategies -----------------------------------------------------------

    def sample_codes(self, rng: random.Random) -> Codes:
        """Draw the codes of a configuration that satisfies `where`.

        Raises:
            ConfigError: none of `TRIES` samples satisfies `where`, and the space is too large to
                list all configurations.
        """
        for _ in range(0 if self._is_rare else TRIES):
            codes: list[Any] = [None] * len(self._kinds)
            for i in self.order:
                if self.active(i, codes):
                    codes[i] = self._kinds[i].sample(rng)
            if self.allows(codes):
                return tuple(codes)
        if self.size <= ENUMERABLE:
            self._is_rare = True
            if self.all_codes:
                return rng.choice(self.all_codes)
            raise ConfigError(
                f"none of {self.size} configurations satisfies `where`", where="space"
            )
        raise ConfigError(
            f"none of {TRIES} samples satisfies `where`",
            where="space",
            fix="compute one variable of an equality: Space(..., derived={NAME: function})",
        )

    @cached_property
    def all_codes(self) -> list[Codes]:
        """All distinct configurations of a finite space that satisfy `where`."""
        prefixes: list[list[Any]] = [[None] * len(self._kinds)]
        for i in self.order:
            grown = []
            for codes in prefixes:
                options = range(int(self._kinds[i].levels)) if self.active(i, codes) else [None]
                grown += [[*codes[:i], option, *codes[i + 1 :]] for option in options]
            prefixes = grown
        return [tuple(codes) for codes in prefixes if self.allows(codes)]

    def mutate_codes(self, codes: Sequence[Any], rng: random.Random) -> Codes:
        """Return codes that differ in one variable and in the variables conditional on it."""
        candidates = [i for i, c in enumerate(codes) if c is not None and self._kinds[i].levels > 1]
        if not candidates:
            return tuple(codes)
        for _ in range(TRIES):
            new = list(codes)
            chosen = rng.choice(candidates)
            new[chosen] = self._kinds[chosen].mutate(new[chosen], rng)
            self._repair(new, rng)
            if self.allows(new):
                return tuple(new)
        return self.sample_codes(rng)

    def allows(self, codes: Sequence[Any]) -> bool:
        """Return whether a configuration satisfies `where`.

        Raises:
            ConfigError: `where` raised an exception, with the configuration.
        """
        if self.where is None:
            return True
        configuration = self.decode(codes)
        try:
            return bool(self.where(configuration))
        except Exception as error:
            raise ConfigError(
                f"`where` raised {type(error).__name__}: {error} for {configuration}",
                where="space.where",
                allowed="a function of every configuration; inactive parameters are absent",
                fix="configuration.get(NAME)",
            ) from error

    # --- implementation ---------------------------------------------------------------------

    def _invalid_parameters(self) -> Iterator[tuple[str, Parameter]]:
        return ((n, p) for n, p in self.parameters.items() if p.problem())

    def _flatten(self) -> dict[str, Variable]:
        out: dict[str, Variable] = {}
        self._widths = {}
        for name, parameter in self.parameters.items():
            parts = parameter.parts(name) if isinstance(parameter, Chain) else {name: parameter}
            self._widths[name] = len(parts)
            shared = next((part for part in parts if part in out), "")
            if shared:
                raise ConfigProblems(
                    [Problem(f"space.{name}", f"{shared} is a parameter and a part of a chain")]
                )
            out.update(parts)
        return out

    def _split_chains(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in configuration.items():
            parameter = self.parameters.get(name)
            if parameter is None:
                near = nearest_name(name, list(self.parameters))
                raise ConfigError(
                    "not in the space",
                    where=name,
                    allowed=", ".join(self.parameters),
                    fix=near or "",
                )
            if isinstance(parameter, Chain):
                try:
                    parts = parameter.take_apart(value)
                except (TypeError, ValueError) as error:
                    raise ConfigError(str(error), where=name) from None
                values.update(zip(parameter.parts(name), parts, strict=True))
            else:
                values[name] = without_numpy(value)
        return values

    def _check_conditions(self) -> None:
        problems = []
        for name, parameter in self.parameters.items():
            for other, allowed in parameter.when.items():
                problem = self._condition_problem(name, other, allowed)
                if problem:
                    problems.append(Problem(f"space.{name}.when", problem))
        if problems:
            raise ConfigProblems(problems)

    def _condition_problem(self, name: str, other: str, allowed: Sequence[Any]) -> str:
        if other not in self.variables:
            return f"no parameter {other!r}{did_you_mean(other, self._names)}"
        if other == name:
            return "depends on itself"
        if isinstance(self.variables[other], Real):
            return f"{other} is a real number; conditions require choices or integers"
        for value in allowed:
            try:
                self.variables[other].code(value)
            except (TypeError, ValueError) as error:
                return f"{other} never has that value: {error}"
        return "" if allowed else f"no value of {other} is listed"

    def _topological(self) -> list[int]:
        order: list[int] = []
        rest = list(range(len(self._names)))
        while rest:
            ready = [
                i for i in rest if all(self._position[n] in order for n in self._kinds[i].when)
            ]
            if not ready:
                names = ", ".join(self._names[i] for i in rest)
                raise ConfigProblems([Problem("space", f"circular conditions: {names}")])
            order += ready
            rest = [i for i in rest if i not in ready]
        return order

    def _code_conditions(self) -> list[list[tuple[int, frozenset[Any]]]]:
        return [
            [
                (self._position[n], frozenset(self.variables[n].code(v) for v in allowed))
                for n, allowed in kind.when.items()
            ]
            for kind in self._kinds
        ]

    def active(self, i: int, codes: Sequence[Any]) -> bool:
        """Return whether all conditions of variable `i` are met."""
        return all(codes[j] in allowed for j, allowed in self.conditions[i])

    def _repair(self, codes: list[Any], rng: random.Random) -> None:
        """Apply the conditions in place: clear inactive variables, sample newly active ones."""
        for i in self.order:
            if not self.active(i, codes):
                codes[i] = None
            elif codes[i] is None:
                codes[i] = self._kinds[i].sample(rng)

    def _count(
        self, controls: list[int], free: list[int], codes: list[Any], at: int
    ) -> int | float:
        if at == len(controls):
            sizes = [self._kinds[i].levels for i in free if self.active(i, codes)]
            return math.prod(sizes)
        i = controls[at]
        # Values that no condition names are alike: an integer may have too many to enumerate.
        named = sorted(
            {c for some in self.conditions for j, allowed in some if j == i for c in allowed}
        )
        unnamed = int(self._kinds[i].levels) - len(named)
        options: list[tuple[Any, int]] = [(None, 1)]
        if self.active(i, codes):
            options = [*((code, 1) for code in named), *([(_UNNAMED, unnamed)] if unnamed else [])]
        total: int | float = 0
        for option, weight in options:
            codes[i] = option
            total += weight * self._count(controls, free, codes, at + 1)
        codes[i] = None
        return total

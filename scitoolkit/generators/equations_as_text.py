"""What generators share whose equations are written as text, with problems by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scitoolkit.core.suggest import nearest_name
from scitoolkit.generators.base import Generator


def one_text(equations: Any) -> Any:
    """Return a list of equations as one text."""
    if isinstance(equations, list | tuple) and all(isinstance(e, str) for e in equations):
        return "; ".join(equations)
    return equations  # a text, or what the type refuses


def of_problem(data: Any, problems: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return keys with those of the problem that they name, as defaults.

    Raises:
        ValueError: no problem of this name.
    """
    if not isinstance(data, Mapping) or not data.get("problem"):
        return data
    name = data["problem"]
    if name not in problems:
        raise ValueError(
            f"no problem {name!r}; nearest: {nearest_name(str(name), list(problems))}; "
            f"allowed: {', '.join(problems)}"
        )
    defaults = dict(problems[name])
    constants = {**defaults.get("constants", {}), **(data.get("constants") or {})}
    return {**defaults, **data, **({"constants": constants} if constants else {})}


class EquationsAsText(Generator):
    """Equations in one text, divided by semicolons, with constants that a campaign may draw."""

    if TYPE_CHECKING:  # fields of the generators, each with its own description
        constants: Mapping[str, float]
        length: float

    @property
    def parameters(self) -> Mapping[str, str]:  # type: ignore[override]
        """{name: unit} of the constants and the length, which a campaign may draw."""
        return {**dict.fromkeys(self.constants, "1"), "length": "1"}

    def with_parameters(self, values: Mapping[str, float]) -> Generator:
        """Return this generator with other constants or another length.

        Raises:
            ConfigError: a name is neither a constant nor `length`, or a value is invalid.
        """
        own = {k: v for k, v in values.items() if k not in self.constants}
        super().with_parameters(own)
        constants = {**self.constants, **{k: v for k, v in values.items() if k in self.constants}}
        return type(self)(**{**dict(self), **own, "constants": constants})

    def value_of(self, parameter: str) -> float:
        """Return a constant, or the length."""
        return self.constants[parameter] if parameter in self.constants else self.length

    def texts(self) -> tuple[str, ...]:
        """Return the equations, one text each."""
        return tuple(text.strip() for text in self.equations.split(";") if text.strip())

    def sorted_constants(self) -> tuple[tuple[str, float], ...]:
        """Return the constants as what can be the key of a cache."""
        return tuple(sorted(self.constants.items()))

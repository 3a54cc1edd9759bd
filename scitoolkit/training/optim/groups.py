"""Parameter groups: learning rate and weight decay by parameter name or kind."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from pydantic import Field, PositiveFloat, model_validator

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name

if TYPE_CHECKING:
    from torch import nn

BIASES_AND_NORMS = "biases_and_norms"


class ParameterGroup(Config):
    """Settings of some parameters; if several groups match one, the last that sets a key wins.

    Example:
        >>> ParameterGroup(parameters="biases_and_norms", weight_decay=0.0).rate_factor is None
        True
    """

    parameters: str = Field(
        description="pattern with * and ?, such as encoder.*, or biases_and_norms (vectors)"
    )
    rate_factor: PositiveFloat | None = Field(
        default=None, description="learning rate relative to the optimizer's"
    )
    weight_decay: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _sets_something(self) -> ParameterGroup:
        if self.rate_factor is None and self.weight_decay is None:
            raise ValueError("sets neither rate_factor nor weight_decay")
        return self

    def holds(self, name: str, parameter: nn.Parameter) -> bool:
        """Return whether the group matches a parameter."""
        if self.parameters == BIASES_AND_NORMS:
            return parameter.dim() <= 1
        return fnmatchcase(name, self.parameters)


def grouped(
    named: Sequence[tuple[str, nn.Parameter]], rules: Sequence[ParameterGroup], lr: float
) -> list[tuple[list[str], dict[str, Any]]]:
    """Return optimizer groups as pairs of parameter names and torch's group dictionary.

    Args:
        named: trainable parameters with their names.
        rules: `training.parameter_groups`.
        lr: learning rate of the optimizer.

    Raises:
        ConfigError: a rule matches no parameter.

    Example:
        >>> from torch import nn
        >>> named = list(nn.Linear(2, 1).named_parameters())
        >>> rules = [ParameterGroup(parameters="bias", rate_factor=0.5, weight_decay=0.0)]
        >>> [(names, options.get("lr")) for names, options in grouped(named, rules, 0.1)]
        [(['weight'], None), (['bias'], 0.05)]
    """
    out: dict[tuple[tuple[str, float], ...], tuple[list[str], dict[str, Any]]] = {}
    for number, rule in enumerate(rules):
        if not any(rule.holds(name, parameter) for name, parameter in named):
            names = [name for name, _ in named]
            near = nearest_name(rule.parameters, names)
            raise ConfigError(
                f"{rule.parameters!r} matches no parameter",
                where=f"training.parameter_groups.{number}.parameters",
                allowed=", ".join(names[:8]) + (", ..." if len(names) > 8 else ""),
                fix=f"did you mean {near}?" if near else "",
            )
    for name, parameter in named:
        options: dict[str, float] = {}
        for rule in rules:
            if rule.holds(name, parameter):
                if rule.rate_factor is not None:
                    options["lr"] = lr * rule.rate_factor
                if rule.weight_decay is not None:
                    options["weight_decay"] = rule.weight_decay
        key = tuple(sorted(options.items()))
        names, group = out.setdefault(key, ([], {"params": [], **options}))
        names.append(name)
        group["params"].append(parameter)
    return list(out.values())

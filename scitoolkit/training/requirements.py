"""What a part of a training requires of the others, stated by the part and worded here.

An optimizer, a strategy, pruning or stored activations inherits `TrainingPart` and states which
options it works without and which capabilities of the optimizer it needs. A new part is then
refused with all options that it cannot work with, without an edit of `TrainingConfig`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from scitoolkit.core.config import Config

# What an optimizer without a capability is, as its refusal says it.
WITHOUT = {
    "shardable": "needs whole parameters",
    "elementwise": "updates a number by others of its tensor",
    "grouped": "takes no parameter_groups",
}


class TrainingPart(Config):
    """Base class of what is chosen in `training:` and does not work with every other choice.

    Attributes:
        needs: capabilities of the optimizer, keys of `WITHOUT`.

    Example:
        >>> class Frozen(TrainingPart):
        ...     def excludes(self):
        ...         return {"compile": "it replaces layers"}
        >>> refusals("frozen", Frozen(), {"compile"})
        ['frozen does not support compile, since it replaces layers: remove compile']
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def excludes(self) -> Mapping[str, str]:
        """Return the keys of `training:` that must keep their defaults, with the reason."""
        return {}


def refusals(label: str, part: TrainingPart, changed: Iterable[str]) -> list[str]:
    """Return why options do not work with a part: one sentence for each.

    Args:
        label: the part in words, e.g. `strategy mesh`.
        part: the part.
        changed: keys of `training:` with another value than their default, nested ones with dots.
    """
    changed = set(changed)
    return [
        f"{label} does not support {key}, since {why}: remove {key.split('.')[-1]}"
        for key, why in part.excludes().items()
        if key in changed
    ]


def optimizer_refusals(
    label: str,
    needs: Iterable[str],
    optimizer: Any,
    others: Mapping[str, Any],
) -> list[str]:
    """Return why an optimizer does not work with a part: one sentence for each missing capability.

    Args:
        label: the part in words.
        needs: capabilities that it needs, keys of `WITHOUT`.
        optimizer: the chosen `OptimizerConfig`.
        others: the classes of all optimizers by name, of which the able ones are listed.
    """
    return [
        f"optimizer {optimizer.name} {WITHOUT[need]}: {label} needs optimizer "
        f"{', '.join(name for name, member in others.items() if getattr(member, need))}"
        for need in needs
        if not getattr(optimizer, need)
    ]


def changed_keys(config: Config) -> set[str]:
    """Return the keys of a configuration with other values than their defaults.

    Keys of sections that have defaults are listed too, as `section.key`.

    Example:
        >>> class Descent(Config):
        ...     rate: float = 1.0
        ...     momentum: float = 0.9
        >>> changed_keys(Descent(rate=2.0))
        {'rate'}
    """
    changed = set()
    for key, field in type(config).model_fields.items():
        value, default = getattr(config, key), field.get_default(call_default_factory=True)
        if value != default:
            changed.add(key)
            if isinstance(value, Config) and isinstance(default, type(value)):
                changed |= {f"{key}.{inner}" for inner in changed_keys(value)}
    return changed

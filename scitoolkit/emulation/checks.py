"""What can only be checked once the file is open: dims that the configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name

if TYPE_CHECKING:
    from scitoolkit.emulation.config import EmulationConfig
    from scitoolkit.emulation.variables import Layout


def check_dims(config: EmulationConfig, layout: Layout) -> None:
    """Refuse dims that the grid does not have, and a network that cannot work on it.

    Raises:
        ConfigError: with the key, the dims there are, and the nearest name.
    """
    named = {
        "boundary": list(config.boundary),
        "coordinates": config.coordinates,
        "transport": list(config.transport or {}),
        "symmetries.shift": config.symmetries.shift,
        "symmetries.mirror": list(config.symmetries.mirror),
    }
    dims = list(layout.grid)
    for key, names in named.items():
        for name in names:
            if name not in dims:
                raise ConfigError(
                    f"{name!r} is no dim of the grid", where=key,
                    allowed=", ".join(dims) or "none: there is no field",
                    fix=nearest_name(name, dims) or "",
                )  # fmt: skip
    if not dims and config.model.name != "mlp":
        raise ConfigError(
            f"model {config.model.name} needs a field, and all variables are vectors",
            where="model.name", allowed="mlp", fix="model={name: mlp}",
        )  # fmt: skip
    if dims and config.model.name == "mlp":
        raise ConfigError(
            "model mlp is for vectors, and there are fields", where="model.name",
            allowed="unet, resnet, fno",
        )  # fmt: skip
    modes = getattr(config.model, "modes", [0])
    if len(modes) not in (1, len(dims)):
        raise ConfigError(
            f"{len(modes)} numbers of modes", where="model.modes",
            allowed=f"1, or {len(dims)} for the dims {', '.join(dims)}",
        )  # fmt: skip


def check_mask(config: EmulationConfig, layout: Layout) -> None:
    """Refuse what cannot work where cells hold no values.

    Raises:
        ConfigError: with the key, and why.
    """
    valid = layout.valid
    if valid is None:
        return
    problems = {}
    if config.transport is not None:
        problems["transport"] = "a flow would carry values out of cells that hold none"
    for position, guard in enumerate(config.guards):
        if not guard.allows_mask():
            problems[f"guards.{position}"] = f"{guard.name} needs values in all cells of the grid"
    for axis, dim in enumerate(layout.grid):
        if dim in config.symmetries.shift and (valid != valid.take([0], axis)).any():
            problems["symmetries.shift"] = f"the mask changes along {dim}"
        if dim in config.symmetries.mirror and (valid != np.flip(valid, axis)).any():
            problems[f"symmetries.mirror.{dim}"] = f"the mask is not its own mirror image in {dim}"
    for where, problem in problems.items():
        raise ConfigError(
            f"not with data.mask: {problem}", where=where, fix="leave it out, or data.mask"
        )


def check_guards(config: EmulationConfig, layout: Layout) -> list[str]:
    """Return the outputs that guards determine.

    Raises:
        ConfigError: a guard reads a variable that is no field of the outputs, or not yet known
            where it stands; or the state before a step where none is given; or it is made for
            steps of one length, and there are several.
    """
    fields = [v.name for v in layout.outputs if v.is_field]
    determined = [n for guard in config.guards for n in guard.determined()]
    known = [n for n in fields if n not in determined]
    for position, guard in enumerate(config.guards):
        where = f"guards.{position} ({guard.name})"
        for name in (*guard.variables(), *guard.determined()):
            if name not in fields:
                raise ConfigError(
                    f"{name!r} is no field of data.outputs", where=where,
                    allowed=", ".join(fields), fix=nearest_name(name, fields) or "",
                )  # fmt: skip
            if name not in (*known, *guard.determined()):
                raise ConfigError(
                    f"{name!r} is computed by a later guard", where=where,
                    fix="put that guard first",
                )  # fmt: skip
        for name in guard.compared():
            if name not in layout.state:
                raise ConfigError(
                    f"{name!r} is no input, so that its value before the step is not known",
                    where=where, allowed=", ".join(layout.state) or "none: no output is an input",
                    fix=f"{name} among data.inputs too, or leave the guard out",
                )  # fmt: skip
        if guard.timed and layout.leads:
            raise ConfigError(
                f"it holds the balance of one step, and data.leads has {len(layout.leads)} leads",
                where=where, fix="leave out data.leads, or the guard",
            )  # fmt: skip
        known += guard.determined()
    if fields and not [n for n in fields if n not in determined]:
        raise ConfigError("every output is computed by a guard", where="guards")
    return determined

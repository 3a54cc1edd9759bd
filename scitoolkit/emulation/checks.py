"""Checks of a configuration against the layout of its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name

_SAME = 1e-2
"""Largest difference of distances between points that count as equal, relative to their mean."""

if TYPE_CHECKING:
    from scitoolkit.emulation.config import EmulationConfig
    from scitoolkit.emulation.variables import Layout


def check_dims(config: EmulationConfig, layout: Layout) -> None:
    """Check the dims that the configuration names, and that the network suits the grid.

    Raises:
        ConfigError: an unknown dim, or a network for fields where there are none, or vice versa.
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
                    f"{name!r} is not a dim of the grid",
                    where=key,
                    allowed=", ".join(dims) or "none: there is no field",
                    fix=nearest_name(name, dims) or "",
                )
    if not dims and config.model.name != "mlp":
        raise ConfigError(
            f"model {config.model.name} needs fields, but all variables are vectors",
            where="model.name",
            allowed="mlp",
            fix="model={name: mlp}",
        )
    if dims and config.model.name == "mlp":
        raise ConfigError(
            "model mlp is for vectors, but there are fields",
            where="model.name",
            allowed="unet, resnet, fno",
        )
    modes = getattr(config.model, "modes", [0])
    if len(modes) not in (1, len(dims)):
        raise ConfigError(
            f"{len(modes)} entries",
            where="model.modes",
            allowed=f"1, or {len(dims)} for the dims {', '.join(dims)}",
        )


def check_symmetries(config: EmulationConfig, layout: Layout) -> None:
    """Check that points stay points under the configured symmetries.

    Shifted and mirrored samples move values from point to point; on other points they would be
    fields that the equations do not have.

    Raises:
        ConfigError: a shift along uneven points, or a mirror along points that are not symmetric
            about their middle.
    """
    for kind in ("shift", "mirror"):
        for dim in getattr(config.symmetries, kind):
            steps = np.diff(np.asarray(layout.coordinates.get(dim, []), dtype=np.float64))
            other = steps.mean() if kind == "shift" and len(steps) else steps[::-1]
            if len(steps) and np.abs(steps - other).max() > _SAME * np.abs(steps).mean():
                what = (
                    "not evenly spaced" if kind == "shift" else "not symmetric about their middle"
                )
                raise ConfigError(
                    f"the points along {dim} are {what}",
                    where=f"symmetries.{kind}",
                    fix="leave the dim out, or interpolate to such points",
                )


def check_mask(config: EmulationConfig, layout: Layout) -> None:
    """Check that settings are compatible with a mask.

    Raises:
        ConfigError: transport, or a guard or symmetry that needs values in all cells.
    """
    valid = layout.valid
    if valid is None:
        return
    problems = {}
    if config.transport is not None:
        problems["transport"] = "it would move values out of cells without values"
    for position, guard in enumerate(config.guards):
        if not guard.allows_mask():
            problems[f"guards.{position}"] = f"{guard.name} needs values in all cells of the grid"
    for axis, dim in enumerate(layout.grid):
        if dim in config.symmetries.shift and (valid != valid.take([0], axis)).any():
            problems["symmetries.shift"] = f"the mask changes along {dim}"
        if dim in config.symmetries.mirror and (valid != np.flip(valid, axis)).any():
            problems[f"symmetries.mirror.{dim}"] = f"the mask is not symmetric along {dim}"
    for where, problem in problems.items():
        raise ConfigError(
            f"not possible with data.mask: {problem}", where=where, fix="leave it out, or data.mask"
        )


def check_guards(config: EmulationConfig, layout: Layout) -> list[str]:
    """Return the outputs that guards determine.

    Raises:
        ConfigError: a guard reads a variable that is not an output field or that a later guard
            computes, or an old value of a variable that is not an input, or it is for one lead and
            there are several; or guards compute all outputs.
    """
    fields = [v.name for v in layout.outputs if v.is_field]
    determined = [n for guard in config.guards for n in guard.determined()]
    computed = [n for n in fields if n not in determined]
    for position, guard in enumerate(config.guards):
        where = f"guards.{position} ({guard.name})"
        for name in (*guard.variables(), *guard.determined()):
            if name not in fields:
                raise ConfigError(
                    f"{name!r} is not a field of data.outputs",
                    where=where,
                    allowed=", ".join(fields),
                    fix=nearest_name(name, fields) or "",
                )
            if name not in (*computed, *guard.determined()):
                raise ConfigError(
                    f"{name!r} is computed by a later guard",
                    where=where,
                    fix="put that guard first",
                )
        for name in guard.compared():
            if name not in layout.state:
                raise ConfigError(
                    f"{name!r} is not an input, so that its value before the step is unknown",
                    where=where,
                    allowed=", ".join(layout.state) or "none: no output is an input",
                    fix=f"add {name} to data.inputs, or leave the guard out",
                )
        if guard.timed and layout.leads:
            raise ConfigError(
                f"it is for a single lead, but data.leads has {len(layout.leads)} leads",
                where=where,
                fix="leave out data.leads, or the guard",
            )
        computed += guard.determined()
    if fields and not [n for n in fields if n not in determined]:
        raise ConfigError("every output is computed by a guard", where="guards")
    return determined
